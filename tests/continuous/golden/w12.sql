-- standard
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.due = DATE_TRUNC('DAY', msgs.due)
  AND msgs.ts <= $t
  AND DATE_TRUNC('DAY', msgs.due) <= $t
  AND $t < DATE_TRUNC('DAY', msgs.due) + INTERVAL '1' DAY

-- monotone
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.due = DATE_TRUNC('DAY', msgs.due)
  AND msgs.ts < DATE_TRUNC('DAY', msgs.due) + INTERVAL '1' DAY
  AND msgs.ts <= $t
  AND DATE_TRUNC('DAY', msgs.due) <= $t

-- incremental
SELECT DISTINCT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.due = DATE_TRUNC('DAY', msgs.due)
  AND msgs.ts < DATE_TRUNC('DAY', msgs.due) + INTERVAL '1' DAY
  AND msgs.ts <= $t
  AND DATE_TRUNC('DAY', msgs.due) <= $t
  AND (
    $tau < msgs.ts OR $tau < DATE_TRUNC('DAY', msgs.due)
  )

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- An equal row of a later run repeats a result, so delivered rows are remembered without end.
