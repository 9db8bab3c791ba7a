//! A policy judges a request.

use polder_cel::Value as Cel;
use polder_model::SmolStr;

use super::{Annotation, Policy, Validation};
use crate::dynamic::conditions::Matched;
use crate::dynamic::request::Inputs;
use crate::dynamic::running::{Failure, Meter, OUT_OF_BUDGET, Running};

/// Upstream's budget for one policy with one binding and one set of parameters.
pub(super) const BUDGET: u64 = 10_000_000;
/// Longer messages that are computed are not shown.
const MESSAGE_LEN_MAX: usize = 5 * 1024;

/// What a policy says about a request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Judged {
    pub(crate) denials: Vec<Denial>,
    pub(crate) annotations: Vec<(SmolStr, AnnotationOutcome)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Denial {
    /// Which validation.
    pub(crate) index: usize,
    pub(crate) message: String,
    /// Empty means `Invalid`.
    pub(crate) reason: SmolStr,
}

#[derive(Debug, PartialEq)]
pub(crate) enum AnnotationOutcome {
    Publish(String),
    Error(String),
}

impl Judged {
    pub(crate) fn failed(message: String, fail: bool) -> Judged {
        let denial = Denial { index: 0, message, reason: SmolStr::default() };
        Judged { denials: if fail { vec![denial] } else { Vec::new() }, annotations: Vec::new() }
    }
}

/// Judges a request, and tells `meter` what that cost.
pub(crate) fn judge(policy: &Policy, inputs: &Inputs<'_>, meter: &mut Meter) -> Judged {
    let fail = policy.basis.fail;
    if !policy.basis.conditions.is_empty() {
        match policy.basis.conditions.hold(inputs, fail, meter) {
            Matched::Yes => {}
            Matched::No => return Judged::default(),
            Matched::Unknown(error) => return Judged::failed(error, fail),
        }
    }
    let budget = BUDGET.min(meter.limit);
    let bindings = inputs.bindings(true, true);
    let running = Running::new(&bindings, &policy.basis.variables, budget);
    let message_bindings = inputs.bindings(true, false);
    let messages = Running::new(&message_bindings, &policy.basis.variables, budget);
    let mut judged = Judged::default();
    let mut deny = |index: usize, message: String, reason: &SmolStr| {
        judged.denials.push(Denial { index, message, reason: reason.clone() });
    };
    let mut out_of_budget = false;
    for (index, validation) in policy.validations.iter().enumerate() {
        let outcome = match &validation.program {
            Ok(program) => running.run(&validation.expression, program),
            Err(problem) => Err(Failure::Error(format!("compilation error: {problem}"))),
        };
        match outcome {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => deny(index, message(validation, &messages), &validation.reason),
            Err(Failure::Error(text)) if fail => deny(index, text, &SmolStr::default()),
            Err(Failure::Error(_)) => {}
            Err(Failure::OutOfBudget) => {
                out_of_budget = true;
                break;
            }
        }
    }
    meter.add(&running);
    meter.add(&messages);
    if out_of_budget {
        meter.ran_out = true;
        return Judged::failed(OUT_OF_BUDGET.into(), fail);
    }
    if !policy.annotations.is_empty() {
        // Annotations have a budget of their own.
        let running = Running::new(&bindings, &policy.basis.variables, budget);
        for annotation in &policy.annotations {
            match annotate(annotation, &running, fail) {
                Ok(Some(outcome)) => judged.annotations.push((annotation.key.clone(), outcome)),
                Ok(None) => {}
                Err(()) => {
                    meter.ran_out = true;
                    judged = Judged::failed(OUT_OF_BUDGET.into(), fail);
                    break;
                }
            }
        }
        meter.add(&running);
    }
    judged
}

/// The first of these there is: what the message expression says, the message, the expression itself.
fn message<'a>(validation: &'a Validation, running: &Running<'a>) -> String {
    if let Some((source, Ok(program))) = &validation.message_program
        && let Ok(Cel::String(text)) = running.run(source, program)
    {
        let text = text.trim();
        if !text.is_empty() && text.len() <= MESSAGE_LEN_MAX && !text.contains('\n') {
            return text.to_owned();
        }
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.trim()),
        message => message.to_owned(),
    }
}

/// `Err` when the budget is used up.
fn annotate<'a>(
    annotation: &'a Annotation,
    running: &Running<'a>,
    fail: bool,
) -> Result<Option<AnnotationOutcome>, ()> {
    let outcome = match &annotation.program {
        Ok(program) => running.run(&annotation.expression, program),
        Err(problem) => Err(Failure::Error(format!("compilation error: {problem}"))),
    };
    Ok(match outcome {
        Ok(Cel::String(text)) => match text.trim() {
            "" => None,
            text => Some(AnnotationOutcome::Publish(text.to_owned())),
        },
        Ok(Cel::Null) => None,
        Ok(other) => Some(AnnotationOutcome::Error(format!(
            "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
            annotation.expression,
            other.type_name(),
        ))),
        Err(Failure::Error(text)) => fail.then_some(AnnotationOutcome::Error(text)),
        Err(Failure::OutOfBudget) => return Err(()),
    })
}
