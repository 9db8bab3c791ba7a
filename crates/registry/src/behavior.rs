//! What is special about a kind: a few flags and a few optional pure functions.
//!
//! Everything common to all kinds (decoding, pruning, static defaults, metadata, generation, status separation,
//! storage, watch, discovery) is the registry's, for built-in kinds and custom resources alike. A built-in kind adds a
//! file in `resources/` with one `Behavior` and a line in `resources::ALL`; most of it is how the kind prints.

use polder_auth::UserInfo;
use polder_model::{FieldError, Value};

/// The special part of a kind. Start from [`Behavior::PLAIN`] and say what differs.
#[derive(Debug)]
pub struct Behavior {
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// What an object may be called.
    pub names: NameRule,
    /// `metadata.generation` starts at 1 and counts changes of anything but metadata and status.
    pub generation: bool,
    /// PUT without a resource version replaces whatever is there. Custom resources refuse that.
    pub unconditional_update: bool,
    /// PUT on a missing object creates it.
    pub create_on_update: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub delete_returns_object: bool,
    /// DELETE without a propagation policy leaves dependents alone.
    pub orphans_by_default: bool,
    /// A status that comes with a new object is kept: kubelets register their nodes so.
    pub status_on_create: bool,
    /// Fields beyond name and namespace that field selectors may use.
    pub selectable: &'static [Selectable],
    /// Paths behind the `scale` subresource.
    pub scale: Option<ScalePaths>,
    /// `kubectl get` columns, after which `cells` fills each row; empty prints name and age.
    pub columns: &'static [Column],
    pub cells: fn(&Value, &Print) -> Vec<Value>,
    /// What a row says about its object beside the cells.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// Defaults that depend on other fields; static ones are in the schema.
    pub default: fn(&mut Value),
    /// Fields the server sets or clears when an object is created.
    pub prepare_create: fn(&mut Value),
    /// What the server notes in a new object about the request that made it.
    pub sign: fn(&mut Value, &Occasion<'_>),
    /// Fields a client cannot change: puts them back from the old object. Not called for subresources.
    pub prepare_update: fn(new: &mut Value, old: &Value),
    /// The same for subresources: what else stays as it was, and what the server notes.
    pub prepare_part: fn(new: &mut Value, old: &Value, &Occasion<'_>),
    /// Checks beyond the schema; `old` is there on update.
    pub validate: fn(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>),
    /// Checks of a change through the `status` subresource.
    pub validate_status: fn(new: &Value, old: &Value, errors: &mut Vec<FieldError>),
    /// Checks of a change through any other subresource that changes the object itself.
    pub validate_part: fn(part: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>),
    /// Turns an object of one served version into another; called only when the versions differ.
    pub convert: fn(&mut Value, from: &str, to: &str),
    /// What strategy warnings to send with a write.
    pub warnings: fn(&Value) -> Vec<String>,
}

impl Behavior {
    /// A kind with nothing special: DNS subdomain names, no generation, name and age columns.
    pub const PLAIN: Behavior = Behavior {
        group: "",
        resource: "",
        names: NameRule::Subdomain,
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        delete_returns_object: false,
        orphans_by_default: false,
        status_on_create: false,
        selectable: &[],
        scale: None,
        columns: &[],
        cells: |_, _| Vec::new(),
        row_conditions: |_| Vec::new(),
        default: |_| {},
        prepare_create: |_| {},
        sign: |_, _| {},
        prepare_update: |_, _| {},
        prepare_part: |_, _, _| {},
        validate: |_, _, _| {},
        validate_status: |_, _, _| {},
        validate_part: |_, _, _, _| {},
        convert: |_, _, _| {},
        warnings: |_| Vec::new(),
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// `my-name.example`: most kinds.
    Subdomain,
    /// `my-name`: namespaces.
    Label,
    /// `my-name`, starting with a letter: services.
    Dns1035Label,
    /// Anything that is one path segment: roles and bindings.
    PathSegment,
}

/// A field that selectors may name.
#[derive(Clone, Copy, Debug)]
pub struct Selectable {
    /// As written in a selector: `spec.nodeName`.
    pub label: &'static str,
    /// Where the value is; several are tried in order (aliases, fallbacks).
    pub paths: &'static [&'static [&'static str]],
    /// The text when none of them is there.
    pub missing: &'static str,
}

#[derive(Clone, Debug)]
pub struct ScalePaths {
    pub spec_replicas: &'static [&'static str],
    pub status_replicas: &'static [&'static str],
    /// A label selector (object or string) that `status.selector` shows.
    pub selector: &'static [&'static str],
}

/// One `kubectl get` column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    /// OpenAPI type: string, integer, number, boolean.
    pub kind: &'static str,
    pub format: &'static str,
    /// Shown only with `-o wide`.
    pub wide: bool,
}

impl Column {
    pub const NAME: Column = Column { name: "Name", kind: "string", format: "name", wide: false };
    pub const AGE: Column = Column::text("Age");

    pub const fn text(name: &'static str) -> Column {
        Column { name, kind: "string", format: "", wide: false }
    }

    pub const fn integer(name: &'static str) -> Column {
        Column { name, kind: "integer", format: "", wide: false }
    }

    pub const fn boolean(name: &'static str) -> Column {
        Column { name, kind: "boolean", format: "", wide: false }
    }

    #[must_use]
    pub const fn wide(mut self) -> Column {
        self.wide = true;
        self
    }
}

/// What cells may depend on beside the object.
#[derive(Clone, Copy, Debug)]
pub struct Print {
    /// Seconds since 1970.
    pub now: i64,
}

/// The circumstances of a write: all that a kind may know about the request.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    pub user: &'a UserInfo,
    /// RFC 3339, in UTC.
    pub now: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub part: &'a str,
}
