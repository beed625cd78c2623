-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts + INTERVAL '15' MICROSECOND <= $t
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
      m1.inreplyto = m.id AND m1.ts <= m.ts + INTERVAL '15' MICROSECOND
  )
  AND m.ts + INTERVAL '15' MICROSECOND <= $t

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
      m1.inreplyto = m.id AND m1.ts <= m.ts + INTERVAL '15' MICROSECOND
  )
  AND m.ts + INTERVAL '15' MICROSECOND <= $t
  AND $tau <= m.ts + INTERVAL '14' MICROSECOND

-- The result is every row that the query returned at any instant, each row once.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
