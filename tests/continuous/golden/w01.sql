-- standard
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.sender = 'joe' AND msgs.ts <= $t

-- monotone
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.sender = 'joe' AND msgs.ts <= $t

-- incremental
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.sender = 'joe' AND msgs.ts <= $t AND $tau < msgs.ts

-- The result is every row that the query returned at any instant, each row once.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
