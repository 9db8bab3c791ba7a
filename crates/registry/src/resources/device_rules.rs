//! What claims, classes and slices of devices have in common: names of attributes and pools, configuration, and expressions
//! that select devices.

use std::sync::{Arc, LazyLock};

use polder_cel::re2::Effort;
use polder_cel::{CompileError, Environment, Field, Opaque, Shape, ShapeKind, Type};
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{ERRORS_MAX, Errors, dns_subdomain, driver_name, some, text};

const POOL_NAME_LEN_MAX: usize = 253;
const DOMAIN_LEN_MAX: usize = 63;
const ID_LEN_MAX: usize = 32;
/// What a string among the attributes of a device may have.
pub(super) const ATTRIBUTE_LEN_MAX: usize = 64;
/// Attributes and capacities of a device.
pub(super) const ATTRIBUTES_MAX: usize = 32;
const PARAMETERS_LEN_MAX: usize = 10 << 10;

const EXPRESSION_LEN_MAX: usize = 10 << 10;
const EXPRESSION_COST_MAX: u64 = 1_000_000;
/// What all expressions of one object may have: they are compiled while others wait.
const EXPRESSIONS_LEN_MAX: usize = 64 << 10;
const EFFORT_MAX: usize = 4 << 20;

/// A list of at most so many; whether it is. What is too long is not looked at.
pub(super) fn is_bounded(
    object: &Value,
    key: &str,
    items_max: usize,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) -> bool {
    let count = object.array_at(&[key]).len();
    if count > items_max {
        errors.push(FieldError::too_many(path.member(key), count, items_max));
    }
    count <= items_max
}

/// Subdomains with slashes between them.
pub(super) fn pool_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    if name.len() > POOL_NAME_LEN_MAX {
        errors.push(FieldError::too_long(path, POOL_NAME_LEN_MAX));
    }
    for part in name.split('/').take(ERRORS_MAX) {
        dns_subdomain(part, path, errors);
    }
}

/// The name of an attribute or capacity: `id` or `domain/id`. Upstream lets names with more slashes pass.
pub(super) fn qualified_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').take(3).collect();
    match parts[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            match domain {
                "" => errors.push(FieldError::invalid(path, "", "the domain must not be empty")),
                domain => driver_name(domain, path, errors),
            }
            match id {
                "" => errors.push(FieldError::invalid(path, "", "the name must not be empty")),
                id => identifier(id, path, errors),
            }
        }
        _ => {}
    }
}

pub(super) fn fully_qualified_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    qualified_name(name, path, errors);
    if !name.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(path, name, why));
    }
}

fn identifier(id: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    const WRONG: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
         alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
         '[A-Za-z_][A-Za-z0-9_]*')";
    if id.len() > ID_LEN_MAX {
        errors.push(FieldError::too_long(path, ID_LEN_MAX));
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = id.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if !starts_well || !id.bytes().all(is_part) {
        errors.push(FieldError::invalid(path, id, WRONG));
    }
}

/// The key of a map as paths of errors show it.
pub(super) fn shown_key(key: &str) -> String {
    const LEN_MAX: usize = DOMAIN_LEN_MAX + 1 + ID_LEN_MAX;
    const ELLIPSIS: &str = "...";
    if key.len() <= LEN_MAX {
        return key.to_owned();
    }
    let left = LEN_MAX - ELLIPSIS.len();
    let head = key.floor_char_boundary(left.div_ceil(2));
    let tail = key.ceil_char_boundary(key.len() - left / 2);
    format!("{}{ELLIPSIS}{}", &key[..head], &key[tail..])
}

/// Configuration for a driver.
pub(super) fn opaque_config(config: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let opaque_path = path.member("opaque");
    let Some(opaque) = some(config, "opaque") else {
        return errors.push(FieldError::required(opaque_path, ""));
    };
    driver_name(text(opaque, "driver"), &opaque_path.member("driver"), errors);
    raw_object(opaque.get("parameters"), PARAMETERS_LEN_MAX, &opaque_path.member("parameters"), errors);
}

/// Any object, of so many bytes.
pub(super) fn raw_object(raw: Option<&Value>, len_max: usize, path: &FieldPath<'_>, errors: &mut Errors) {
    match raw {
        None | Some(Value::Null) => errors.push(FieldError::required(path, "")),
        Some(raw) if raw.to_vec().len() > len_max => errors.push(FieldError::too_long(path, len_max)),
        Some(Value::Object(_)) => {}
        Some(_) => {
            errors.push(FieldError::invalid(path, "<value omitted>", "must be a valid JSON object"));
        }
    }
}

/// Compiles the expressions of one object that select devices, as long as that is no great work.
pub(super) struct Selectors {
    len_left: usize,
    environment: Environment,
}

impl Default for Selectors {
    fn default() -> Selectors {
        let environment = Environment::new().with_effort(&Effort::new(EFFORT_MAX));
        let environment = environment.with_bind().document("device", &DEVICE);
        Selectors { len_left: EXPRESSIONS_LEN_MAX, environment }
    }
}

impl Selectors {
    pub(super) fn validate(&mut self, selector: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
        let path = path.member("cel");
        let Some(cel) = some(selector, "cel") else {
            return errors.push(FieldError::required(path, ""));
        };
        let (expression, path) = (text(cel, "expression"), path.member("expression"));
        if expression.len() > EXPRESSION_LEN_MAX {
            return errors.push(FieldError::too_long(path, EXPRESSION_LEN_MAX));
        }
        let Some(left) = self.len_left.checked_sub(expression.len()) else {
            let why = format!("the selectors of one object may have {EXPRESSIONS_LEN_MAX} bytes together");
            return errors.push(FieldError::forbidden(path, why));
        };
        self.len_left = left;
        errors.extend(self.problem(expression, &path));
    }

    fn problem(&self, expression: &str, path: &FieldPath<'_>) -> Option<FieldError> {
        let program = match self.environment.compile(expression) {
            Ok(program) => program,
            Err(CompileError::Expression(errors)) => {
                return Some(FieldError::invalid(path, expression, format!("compilation failed: {errors}")));
            }
            Err(CompileError::Instantiation(why)) => {
                return Some(FieldError::internal(path, format!("program instantiation failed: {why}")));
            }
        };
        match program.result() {
            Type::Bool | Type::Dyn if program.cost_estimate().max > EXPRESSION_COST_MAX => {
                Some(FieldError::forbidden(path, "too complex, exceeds cost limit"))
            }
            Type::Bool | Type::Dyn => None,
            other => {
                let why = format!("must evaluate to bool or the unknown type, not {other}");
                Some(FieldError::invalid(path, expression, why))
            }
        }
    }
}

/// The variable `device`: attributes and capacities by domain and name.
static DEVICE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let by_domain = |value: Shape| {
        let names = Shape::map(Arc::new(value), Some(ATTRIBUTES_MAX as u64));
        Arc::new(Shape::map(Arc::new(names), Some(ATTRIBUTES_MAX as u64)))
    };
    let attribute = Shape { elements_max: ATTRIBUTE_LEN_MAX as u64, ..Shape::dynamic() };
    let quantity = Shape { kind: ShapeKind::Opaque(Opaque::Quantity), ..Shape::dynamic() };
    let driver = Shape { elements_max: DOMAIN_LEN_MAX as u64, ..Shape::string(None) };
    let fields = [
        ("driver", Arc::new(driver)),
        ("attributes", by_domain(attribute)),
        ("capacity", by_domain(quantity)),
    ];
    let fields = fields.into_iter().filter_map(|(name, shape)| Field::new(name, shape)).collect();
    Arc::new(Shape::object("kubernetes.DRADevice", fields, 0))
});
