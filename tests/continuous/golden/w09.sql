-- standard
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1
CROSS JOIN msgs AS m2
WHERE
  m.inreplyto IS NULL
  AND m1.inreplyto = m.id
  AND m2.inreplyto = m1.id
  AND m.ts <= $t
  AND m1.ts <= $t
  AND m2.ts <= $t

-- monotone
SELECT DISTINCT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1
CROSS JOIN msgs AS m2
WHERE
  m.inreplyto IS NULL
  AND m1.inreplyto = m.id
  AND m2.inreplyto = m1.id
  AND m.ts <= $t
  AND m1.ts <= $t
  AND m2.ts <= $t

-- incremental
SELECT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1
CROSS JOIN msgs AS m2
WHERE
  m.inreplyto IS NULL
  AND m1.inreplyto = m.id
  AND m2.inreplyto = m1.id
  AND $tau < m2.ts
  AND m2.ts <= $t
  AND m1.ts <= $t
  AND m.ts <= $t
UNION
SELECT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1
CROSS JOIN msgs AS m2
WHERE
  m.inreplyto IS NULL
  AND m1.inreplyto = m.id
  AND m2.inreplyto = m1.id
  AND $tau < m1.ts
  AND m1.ts <= $t
  AND m2.ts <= $tau
  AND m.ts <= $t
UNION
SELECT
  m.id AS id
FROM msgs AS m
CROSS JOIN msgs AS m1
CROSS JOIN msgs AS m2
WHERE
  m.inreplyto IS NULL
  AND m1.inreplyto = m.id
  AND m2.inreplyto = m1.id
  AND $tau < m.ts
  AND m.ts <= $t
  AND m2.ts <= $tau
  AND m1.ts <= $tau

-- The result is every row that the query returned at any instant, each row once.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
