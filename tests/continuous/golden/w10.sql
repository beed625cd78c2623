-- standard
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND $t <= msgs.date
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND msgs.due <= $t

-- monotone
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= msgs.date AND msgs.ts <= $t
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t AND msgs.due <= $t

-- incremental
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= msgs.date
  AND msgs.ts <= $t
  AND $tau < msgs.ts
  AND NOT (
    msgs.ts <= $tau AND msgs.due <= $tau
  ) IS TRUE
UNION
SELECT
  msgs.id AS id
FROM msgs AS msgs
WHERE
  msgs.ts <= $t
  AND msgs.due <= $t
  AND (
    $tau < msgs.ts OR $tau < msgs.due
  )
  AND NOT (
    msgs.ts <= msgs.date AND msgs.ts <= $tau
  ) IS TRUE

-- The result is every row that the query returned at any instant, each row once.
-- A row that is published after its upper bound on current time is never returned.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
