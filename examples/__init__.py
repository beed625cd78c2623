"""Small applications to start from; README.md says how each is run."""
