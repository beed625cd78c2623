"""The shape of the code itself: its layers, its words, its public face."""
