//! The targets, one file each. A new one is a file here and a line in [`ALL`].

use crate::Target;

macro_rules! targets {
    ($($(#[$doc:meta])* $module:ident $($make:ident)?),* $(,)?) => {
        $(pub mod $module;)*

        /// All targets, in the order they run.
        pub const ALL: &[Target] = &[$(Target {
            name: stringify!($module),
            run: $module::run,
            words: $module::WORDS,
            make: targets!(@make $module $($make)?),
        }),*];
    };
    (@make $module:ident make) => { Some($module::make) };
    (@make $module:ident) => { None };
}

// `make`: the target can build inputs of its own.
targets! {
    route,
    query,
    json_value make,
    yaml make,
    splice make,
    record make,
    label_selector,
    field_selector,
    continue_token make,
    json_patch make,
    merge_patch make,
    strategic_merge_patch make,
    fields_v1 make,
    server_side_apply make,
    jsonpath,
    regular_expression,
    cel make,
    quantity,
    structural_schema make,
    definition make,
    builtin_object make,
    token_file,
    certificate make,
    account_token make,
    accept,
    protobuf_body make,
    admission_answer make,
    conversion_answer make,
    review_answer make,
    kubeconfig,
}
