-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts + INTERVAL '15' MICROSECOND <= $t AND $t <= m.ts + INTERVAL '20' MICROSECOND

-- monotone
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts + INTERVAL '15' MICROSECOND <= $t

-- incremental
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts + INTERVAL '15' MICROSECOND <= $t
  AND $tau <= m.ts + INTERVAL '14' MICROSECOND

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
