"""The app's side of the grid: registrations of what was read, and their validity."""
