//! Whether one type fits where another is expected, and what that says about the types still to be found.
//!
//! The rules are cel-go's, which are looser than textbook unification: `dyn` fits everything, and a type variable
//! takes the more general of the types it meets. Every step takes fuel; without fuel the answer is no, and the
//! checker reports that the expression is too complex.

use std::sync::Arc;

use crate::types::Type;

/// Steps for one expression. Ordinary rules take some hundreds.
const FUEL: u32 = 2_000_000;

#[derive(Debug)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// What was bound when, to take it back.
    trail: Vec<(u32, Option<Type>)>,
    fuel: u32,
}

impl Default for Unifier {
    fn default() -> Unifier {
        Unifier { bound: Vec::new(), trail: Vec::new(), fuel: FUEL }
    }
}

impl Unifier {
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(u32::try_from(self.bound.len() - 1).unwrap_or(u32::MAX))
    }

    /// Fresh variables in a row, for the letters of a signature.
    pub(crate) fn fresh_row(&mut self, count: u32) -> u32 {
        let first = u32::try_from(self.bound.len()).unwrap_or(u32::MAX);
        self.bound.extend((0..count).map(|_| None));
        first
    }

    pub(crate) fn exhausted(&self) -> bool {
        self.fuel == 0
    }

    fn step(&mut self) -> bool {
        self.fuel = self.fuel.saturating_sub(1);
        self.fuel > 0
    }

    /// Whether `given` may stand for `wanted`. What was learned stays only if all of it fits.
    pub(crate) fn assignable(&mut self, wanted: &Type, given: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(wanted), std::slice::from_ref(given))
    }

    pub(crate) fn all_assignable(&mut self, wanted: &[Type], given: &[Type]) -> bool {
        let start = self.trail.len();
        let fits = wanted.len() == given.len()
            && wanted.iter().zip(given).all(|(wanted, given)| self.fits(wanted, given));
        if !fits {
            while self.trail.len() > start {
                if let Some((variable, old)) = self.trail.pop() {
                    self.bound[variable as usize] = old;
                }
            }
        }
        fits
    }

    fn bind(&mut self, variable: u32, to: Type) {
        let old = self.bound[variable as usize].replace(to);
        self.trail.push((variable, old));
    }

    fn fits(&mut self, one: &Type, two: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Variable(variable) = two {
            match self.substitute_variable(one, *variable) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Variable(variable) = one {
            return self.substitute_variable(two, *variable).0;
        }
        if one.is_dyn_or_error() || two.is_dyn_or_error() {
            return true;
        }
        match (one, two) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => {
                self.fits(one, two)
            }
            (Type::Map(one), Type::Map(two)) => self.fits(&one.0, &two.0) && self.fits(&one.1, &two.1),
            (Type::Type(_), Type::Type(_)) => true,
            _ => self.exact(one, two),
        }
    }

    /// Whether the type fits the variable, and whether the variable was bound already.
    fn substitute_variable(&mut self, fitting: &Type, variable: u32) -> (bool, bool) {
        if matches!(fitting, Type::Variable(other) if *other == variable) {
            return (true, true);
        }
        if let Some(bound) = self.bound[variable as usize].clone() {
            if self.exact(fitting, &bound) {
                return (true, true);
            }
            if !self.fits(fitting, &bound) {
                return (false, true);
            }
            let general = self.most_general(fitting, &bound);
            if self.not_within(variable, &general) {
                self.bind(variable, general);
            }
            return (true, true);
        }
        if self.not_within(variable, fitting) {
            self.bind(variable, fitting.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&mut self, variable: u32, within: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match within {
            Type::Variable(other) if *other == variable => false,
            Type::Variable(other) => match self.bound[*other as usize].clone() {
                Some(bound) => self.not_within(variable, &bound),
                None => true,
            },
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => self.not_within(variable, inner),
            Type::Map(pair) => self.not_within(variable, &pair.0) && self.not_within(variable, &pair.1),
            _ => true,
        }
    }

    pub(crate) fn exact(&mut self, one: &Type, two: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match (one, two) {
            (Type::List(one), Type::List(two))
            | (Type::Optional(one), Type::Optional(two))
            | (Type::Type(one), Type::Type(two)) => self.exact(one, two),
            (Type::Map(one), Type::Map(two)) => self.exact(&one.0, &two.0) && self.exact(&one.1, &two.1),
            (Type::Object(one), Type::Object(two)) => Arc::ptr_eq(one, two) || same_name(one, two),
            (Type::Opaque(one), Type::Opaque(two)) => one == two,
            (Type::Made(one), Type::Made(two)) => one == two,
            (Type::Variable(one), Type::Variable(two)) => one == two,
            _ => std::mem::discriminant(one) == std::mem::discriminant(two),
        }
    }

    pub(crate) fn most_general(&mut self, one: &Type, two: &Type) -> Type {
        if self.less_specific(one, two) { one.clone() } else { two.clone() }
    }

    fn less_specific(&mut self, one: &Type, two: &Type) -> bool {
        if !self.step() {
            return true;
        }
        match (one, two) {
            (Type::Dyn | Type::Variable(_), _) => true,
            (_, Type::Dyn | Type::Variable(_)) => false,
            (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => {
                self.less_specific(one, two)
            }
            (Type::Map(one), Type::Map(two)) => {
                self.less_specific(&one.0, &two.0) && self.less_specific(&one.1, &two.1)
            }
            (Type::Type(_), Type::Type(_)) => true,
            _ => self.exact(one, two),
        }
    }

    /// The type with everything known put in. At the end, what nobody said anything about is `dyn`.
    pub(crate) fn resolve(&mut self, known: &Type, finally: bool) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        match known {
            Type::Variable(variable) => match self.bound[*variable as usize].clone() {
                Some(bound) => self.resolve(&bound, finally),
                None if finally => Type::Dyn,
                None => known.clone(),
            },
            Type::List(inner) => Type::list(self.resolve(inner, finally)),
            Type::Optional(inner) => Type::optional(self.resolve(inner, finally)),
            Type::Type(inner) => Type::Type(Arc::new(self.resolve(inner, finally))),
            Type::Map(pair) => {
                let key = self.resolve(&pair.0, finally);
                Type::map(key, self.resolve(&pair.1, finally))
            }
            simple => simple.clone(),
        }
    }

    /// A signature's type with its letters replaced by the variables from `first` on.
    pub(crate) fn instantiate(signature: &Type, first: u32) -> Type {
        match signature {
            Type::Variable(letter) => Type::Variable(first + letter),
            Type::List(inner) => Type::list(Unifier::instantiate(inner, first)),
            Type::Optional(inner) => Type::optional(Unifier::instantiate(inner, first)),
            Type::Type(inner) => Type::Type(Arc::new(Unifier::instantiate(inner, first))),
            Type::Map(pair) => {
                Type::map(Unifier::instantiate(&pair.0, first), Unifier::instantiate(&pair.1, first))
            }
            simple => simple.clone(),
        }
    }
}

fn same_name(one: &crate::shape::Shape, two: &crate::shape::Shape) -> bool {
    use crate::shape::ShapeKind::Object;
    matches!((&one.kind, &two.kind), (Object { name: one, .. }, Object { name: two, .. }) if one == two)
}
