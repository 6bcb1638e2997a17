//! The slowest store there is: one map, one lock, and the arithmetic straight from the core. What it
//! answers is by definition right, so other stores are compared with it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tidegate_core::{Decision, Key, Operation, State};

use crate::{Answers, Charge, Request, Store, StoreError};

/// A store to compare others with.
#[derive(Debug, Default)]
pub struct Model {
    states: Mutex<HashMap<Key, State>>,
}

impl Model {
    fn decide_one(
        states: &mut HashMap<Key, State>,
        request: &Request<'_>,
    ) -> Result<Vec<Decision>, StoreError> {
        if request.charges.len() > Request::CHARGES_MAX {
            return Err(StoreError::TooManyCharges);
        }
        let keys: std::collections::HashSet<_> =
            request.charges.iter().map(|charge| charge.key).collect();
        if keys.len() < request.charges.len() {
            return Err(StoreError::RepeatedKey);
        }
        let fits = |charge: &Charge<'_>| match charge.operation {
            Operation::Take { cost } => {
                let state = states.get(&charge.key).cloned();
                charge.limit.decide(state, request.now, Operation::Peek { cost }).0.is_allowed()
            }
            _ => true,
        };
        let all_fit = request.charges.iter().all(fits);
        let mut decisions = Vec::new();
        for charge in request.charges {
            let operation = match charge.operation {
                Operation::Take { cost } if !all_fit && request.charges.len() > 1 => {
                    Operation::Peek { cost }
                }
                operation => operation,
            };
            let state = states.remove(&charge.key);
            let (decision, next) = charge.limit.decide(state, request.now, operation);
            states.extend(next.map(|state| (charge.key, state)));
            decisions.push(decision);
        }
        Ok(decisions)
    }
}

impl Store for Model {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        answers.clear();
        for request in batch {
            answers.push_with(|decisions| {
                decisions.extend(Self::decide_one(&mut states, request)?);
                Ok(())
            });
        }
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            states.remove(key);
        }
        Ok(())
    }
}
