"""The app's side of the grid: registrations of the queries that responses read, and their validity."""
