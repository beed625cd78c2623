"""Real browsers without a window, each driven by its own protocol behind one face: `browser.py`."""
