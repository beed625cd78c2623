-- standard
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND $t < msgs.due
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.subject = 'base'
  AND msgs.ts <= $t
  AND msgs.date + INTERVAL '2' MICROSECOND <= $t

-- monotone
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts < msgs.due AND msgs.ts <= $t
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.subject = 'base'
  AND msgs.ts <= $t
  AND msgs.date + INTERVAL '2' MICROSECOND <= $t

-- incremental
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts < msgs.due
  AND msgs.ts <= $t
  AND $tau < msgs.ts
  AND NOT (
    msgs.subject = 'base'
    AND msgs.ts <= $tau
    AND msgs.date + INTERVAL '2' MICROSECOND <= $tau
  ) IS TRUE
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.subject = 'base'
  AND msgs.ts <= $t
  AND msgs.date + INTERVAL '2' MICROSECOND <= $t
  AND (
    $tau < msgs.ts OR $tau <= msgs.date + INTERVAL '1' MICROSECOND
  )
  AND NOT (
    msgs.ts < msgs.due AND msgs.ts <= $tau
  ) IS TRUE

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
