"""Geospatial operators: whether places lie within, across or near others, decided like mongod.

On the sphere the geometry is S2's, the library that mongod uses too; in the plane it is mongod's own few rules.
`docs/query_semantics_geo.md` describes the consequences near borders.
"""
