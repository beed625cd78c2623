"""Real-time queries: results that subscribers see change, kept up to date by the grid instead of being read again."""
