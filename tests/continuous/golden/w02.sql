-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts <= $t AND $t < m.date

-- monotone
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts < m.date AND m.ts <= $t

-- incremental
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts < m.date AND m.ts <= $t AND $tau < m.ts

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
