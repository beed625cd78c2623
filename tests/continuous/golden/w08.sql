-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
WHERE
  m.ts + INTERVAL '11' MICROSECOND <= $t
  AND NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id AND m1.ts <= $t AND $t <= m1.ts + INTERVAL '13' MICROSECOND
  )

-- monotone
SELECT
  m.id AS id
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id
      AND m1.ts <= m.ts + INTERVAL '11' MICROSECOND
      AND m.ts <= m1.ts + INTERVAL '2' MICROSECOND
  )
  AND m.ts + INTERVAL '11' MICROSECOND <= $t
UNION
SELECT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1_then1
WHERE
  m1_then1.inreplyto = m.id
  AND m.ts <= m1_then1.ts + INTERVAL '3' MICROSECOND
  AND NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id
      AND m1.ts <= m1_then1.ts + INTERVAL '14' MICROSECOND
      AND m1_then1.ts < m1.ts
  )
  AND m1_then1.ts + INTERVAL '14' MICROSECOND <= $t

-- incremental
SELECT
  m.id AS id
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id
      AND m1.ts <= m.ts + INTERVAL '11' MICROSECOND
      AND m.ts <= m1.ts + INTERVAL '2' MICROSECOND
  )
  AND m.ts + INTERVAL '11' MICROSECOND <= $t
  AND $tau <= m.ts + INTERVAL '10' MICROSECOND
UNION
SELECT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1_then1
WHERE
  m1_then1.inreplyto = m.id
  AND m.ts <= m1_then1.ts + INTERVAL '3' MICROSECOND
  AND NOT EXISTS(
    SELECT
      1
    FROM msgs AS m1
    WHERE
      m1.inreplyto = m.id
      AND m1.ts <= m1_then1.ts + INTERVAL '14' MICROSECOND
      AND m1_then1.ts < m1.ts
  )
  AND m1_then1.ts + INTERVAL '14' MICROSECOND <= $t
  AND $tau <= m1_then1.ts + INTERVAL '13' MICROSECOND

-- The result is every row that the query returned at any instant, each row once.
-- A NOT EXISTS can become true again, because its rows stop counting after some time.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
