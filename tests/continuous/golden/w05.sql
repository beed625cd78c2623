-- standard
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND msgs.date <= $t AND $t <= msgs.date

-- monotone
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= msgs.date AND msgs.date <= $t

-- incremental
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= msgs.date AND msgs.date <= $t AND $tau < msgs.date

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
