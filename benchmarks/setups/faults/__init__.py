"""What breaks things, and what tells whether that did any harm: links that fail, processes that die, a checker."""
