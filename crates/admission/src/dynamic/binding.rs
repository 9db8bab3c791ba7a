//! Bindings of admission policies: where a policy applies, with which parameters, and what follows.

use polder_model::selector::LabelSelector;
use polder_model::{SmolStr, Value};

use super::matching::Matcher;

#[derive(Debug)]
pub struct Binding {
    pub(crate) name: SmolStr,
    pub(crate) policy: SmolStr,
    pub(crate) matcher: Option<Matcher>,
    pub(crate) params: Option<ParamRef>,
    /// As written.
    pub(crate) actions: Vec<SmolStr>,
}

/// Which objects are the parameters.
#[derive(Debug)]
pub(crate) struct ParamRef {
    pub(crate) name: SmolStr,
    pub(crate) namespace: SmolStr,
    pub(crate) selector: Option<Result<LabelSelector, String>>,
    /// None of them is a failure.
    pub(crate) deny_missing: bool,
}

impl Binding {
    pub fn read(binding: &Value) -> Binding {
        let text = |path: &[&str]| SmolStr::new(binding.str_at(path).unwrap_or_default());
        let some = |path: &[&str]| binding.at(path).filter(|value| !value.is_null());
        let actions = binding.array_at(&["spec", "validationActions"]).iter().filter_map(Value::as_str);
        let params = some(&["spec", "paramRef"]).map(|_| ParamRef {
            name: text(&["spec", "paramRef", "name"]),
            namespace: text(&["spec", "paramRef", "namespace"]),
            selector: some(&["spec", "paramRef", "selector"])
                .map(|selector| LabelSelector::from_value(selector).map_err(|error| error.to_string())),
            deny_missing: text(&["spec", "paramRef", "parameterNotFoundAction"]) == "Deny",
        });
        Binding {
            name: text(&["metadata", "name"]),
            policy: text(&["spec", "policyName"]),
            matcher: some(&["spec", "matchResources"]).map(|matcher| Matcher::read(matcher, "resourceRules")),
            params,
            actions: actions.map(SmolStr::new).collect(),
        }
    }

    pub(crate) fn does(&self, action: &str) -> bool {
        self.actions.iter().any(|own| own == action)
    }
}
