-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts <= $t
  AND NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id AND m1.ts <= $t
  )

-- monotone
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id AND m1.ts <= m.ts
  )
  AND m.ts <= $t

-- incremental
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id AND m1.ts <= m.ts
  )
  AND m.ts <= $t
  AND $tau < m.ts

-- The result is every row that the query returned at any instant, each row once.
-- A row is returned at its publication, before any row could match its NOT EXISTS. Add a bound such as `ts + INTERVAL 14 DAY < now()` if the absence must last.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
