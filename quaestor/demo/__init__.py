"""Demo: a whole stack on real data, with live writes and a live page, or checked promise by promise."""
