"""Demo: a whole stack on real data, with live writes and a live page, or with a script that checks each promise."""
