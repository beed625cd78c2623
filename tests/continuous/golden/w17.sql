-- standard
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND $t < msgs.due

-- monotone
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts < msgs.due AND msgs.ts <= $t

-- incremental
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts < msgs.due AND msgs.ts <= $t AND $tau < msgs.ts

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
