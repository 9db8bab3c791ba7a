//! The tables of a history, in a schema of their own, and what is said to them.
//!
//! | table | what |
//! |---|---|
//! | `log` | entries, by position, without a hole; always one at least. The first is known to all who have the tables below |
//! | `state` | one row: the format, which history it is, and up to which entry the tables below are |
//! | `object` | the newest version of each object in each space, also when that is its deletion |
//! | `row` | planes (`p`), spaces (`s`), their keys (`k`) and notes (`n`) |
//! | `leader` | one row: who does what only one may do, and how often it has said so |

/// What tables and values look like.
pub(crate) const FORMAT: i32 = 1;

/// Rows of one answer.
const PAGE_LEN: usize = 512;

/// Everything that is said, in the words of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Sql {
    pub(crate) schema: String,
    pub(crate) channel: String,
    pub(crate) append: String,
    pub(crate) end: String,
    pub(crate) page: String,
}

impl Sql {
    /// `schema` is a plain name.
    pub(crate) fn new(schema: &str) -> Sql {
        // The row of the entry before is locked against whoever removes old ones: as long as it is there, so is all that was
        // added behind it, and nothing can be added twice.
        let append = format!(
            "WITH added AS (\
               INSERT INTO {schema}.log (position, name, revision, entry) \
               SELECT position + 1, $2::bytea, $3::bigint, $4::bytea FROM {schema}.log \
               WHERE position = $1::bigint AND ($5::bytea IS NULL OR name = $5::bytea) FOR KEY SHARE \
               ON CONFLICT (position) DO NOTHING RETURNING position) \
             SELECT position, pg_notify($6::text, position::text || ' ' || $7::text) FROM added"
        );
        let end = format!("SELECT position, revision FROM {schema}.log ORDER BY position DESC LIMIT 1");
        // What is asked for is behind $1, whose own row is there to be recognized. Ends with the entry that makes it as heavy as $2.
        let page = format!(
            "SELECT position, name, revision, CASE WHEN position > $1 THEN entry END FROM (\
               SELECT position, name, revision, entry, \
                 sum(octet_length(entry)) OVER (ORDER BY position) - octet_length(entry) AS before \
               FROM {schema}.log WHERE position >= $1::bigint ORDER BY position LIMIT {PAGE_LEN}) AS page \
             WHERE before < $2::bigint OR position <= $1 + 1 ORDER BY position"
        );
        Sql { schema: schema.to_owned(), channel: format!("{schema}_journal"), append, end, page }
    }

    /// Makes what is missing. One at a time does: `IF NOT EXISTS` is no protection from others who do the same.
    pub(crate) fn create(&self, has_schema: bool, identity: &str) -> String {
        let schema = &self.schema;
        let make = if has_schema { String::new() } else { format!("CREATE SCHEMA IF NOT EXISTS {schema};") };
        format!(
            "BEGIN;\
             SELECT pg_advisory_xact_lock(hashtext('polder'), hashtext('{schema}'));\
             {make}\
             CREATE TABLE IF NOT EXISTS {schema}.log (\
               position bigint PRIMARY KEY, name bytea NOT NULL, revision bigint NOT NULL, entry bytea NOT NULL\
             ) WITH (toast_tuple_target = 8160);\
             ALTER TABLE {schema}.log ALTER COLUMN entry SET STORAGE EXTERNAL;\
             CREATE TABLE IF NOT EXISTS {schema}.state (\
               one boolean PRIMARY KEY DEFAULT true CHECK (one), format integer NOT NULL, identity text NOT NULL,\
               position bigint NOT NULL, revision bigint NOT NULL);\
             CREATE TABLE IF NOT EXISTS {schema}.object (\
               space bigint, key text COLLATE \"C\", revision bigint NOT NULL, record bytea,\
               PRIMARY KEY (space, key)\
             ) WITH (toast_tuple_target = 8160);\
             ALTER TABLE {schema}.object ALTER COLUMN record SET STORAGE EXTERNAL;\
             CREATE TABLE IF NOT EXISTS {schema}.row (\
               kind text COLLATE \"C\", key text COLLATE \"C\", value bytea NOT NULL, PRIMARY KEY (kind, key));\
             CREATE TABLE IF NOT EXISTS {schema}.leader (\
               one boolean PRIMARY KEY DEFAULT true CHECK (one), name text NOT NULL, beat bigint NOT NULL);\
             INSERT INTO {schema}.log \
               SELECT 0, '', 0, '' WHERE NOT EXISTS (SELECT FROM {schema}.state);\
             INSERT INTO {schema}.leader VALUES (true, '', 0) ON CONFLICT DO NOTHING;\
             INSERT INTO {schema}.state VALUES (true, {FORMAT}, '{identity}', 0, 0) ON CONFLICT DO NOTHING;\
             COMMIT"
        )
    }

    /// What a session is asked about the server before it is used.
    pub(crate) fn greeting(&self) -> String {
        let schema = &self.schema;
        format!(
            "SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'), \
               current_setting('fsync'), to_regnamespace('{schema}') IS NOT NULL, \
               to_regclass('{schema}.state') IS NOT NULL"
        )
    }
}
