"""Places: what lies within, across or near what, as mongod's geospatial operators decide it.

On the sphere the geometry is S2's, the library mongod uses too; in the plane it is mongod's own few rules.
`docs/query_semantics_geo.md` says what follows from that near borders.
"""
