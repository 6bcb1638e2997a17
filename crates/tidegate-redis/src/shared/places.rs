//! The places of one node as parts of requests are decided in them, and given back where they were taken.

use std::sync::Arc;

use tidegate_core::{Operation, Terms};
use tidegate_store::{Charge, Request, Settled, Source, StoreError};
use tokio::time::Instant;

use super::node::{Node, Place};
use super::policy;
use crate::split::{GiveBacks, OwnedCharge, Part, Places};

impl Places for Arc<Node> {
    type Place = Place;
    type Tag = Terms;

    async fn decide(
        &self,
        place: Place,
        part: &Part<Terms>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        if part.charges.iter().any(|charge| charge.taken_by.is_some()) {
            return give_back(self, place, part, end, settled).await;
        }
        let (charges, terms) = (part.charges(), terms_of(&part.charges));
        let request = Request { now: part.now, charges: &charges };
        self.decide_in(place, &request, &terms, end, settled).await
    }

    fn is_at_hand(&self, place: Place) -> bool {
        match place {
            Place::Here => true,
            Place::Group(_) | Place::Alone(..) | Place::Leased(..) => false,
        }
    }

    fn give_backs(&self) -> &Arc<GiveBacks> {
        &self.give_backs
    }
}

/// Gives each charge back to who took it: what was taken by policy is not the store's, and no policy
/// answers for a store that did not take something back.
async fn give_back(
    node: &Arc<Node>,
    place: Place,
    part: &Part<Terms>,
    end: Instant,
    settled: &mut Vec<Settled>,
) -> Result<(), StoreError> {
    let group = match place {
        Place::Here => None,
        Place::Group(number) | Place::Alone(number, _) | Place::Leased(number, _) => {
            Some(&node.groups[usize::from(number)])
        }
    };
    let mut answers = vec![None; part.charges.len()];
    let mut of_store = Vec::new();
    for (index, charge) in part.charges.iter().enumerate() {
        let request = Request { now: part.now, charges: &[charge.as_charge()] };
        let mut answer = Vec::with_capacity(1);
        match (charge.taken_by, group) {
            (Some(Source::Fallback), Some(group)) => {
                let table = node.table(part.now)?;
                let error = StoreError::Unreachable;
                policy::settle(error, table, group.nodes(), &request, &[charge.tag], &mut answer)?;
            }
            (taken_by, Some(group)) => {
                let undone = match (taken_by, charge.operation) {
                    (Some(Source::Lease), Operation::Refund { cost, taken_at }) => {
                        node.undo_leased(group, charge.key, cost, taken_at, true, part.now)
                    }
                    _ => None,
                };
                let Some(undone) = undone else {
                    of_store.push(index);
                    continue;
                };
                answer.push(undone);
            }
            (_, None) => node.decide_here(&request, &mut answer)?,
        }
        answers[index] = answer.pop();
    }
    if let Some(group) = group.filter(|_| !of_store.is_empty()) {
        let charges: Vec<Charge<'_>> =
            of_store.iter().map(|&index| part.charges[index].as_charge()).collect();
        let mut theirs = Vec::with_capacity(charges.len());
        let request = Request { now: part.now, charges: &charges };
        node.ask(group, &request, end, &mut theirs).await?;
        for (index, answer) in of_store.into_iter().zip(theirs) {
            answers[index] = Some(answer);
        }
    }
    settled.extend(answers.into_iter().flatten());
    Ok(())
}

fn terms_of(charges: &[OwnedCharge<Terms>]) -> Vec<Terms> {
    charges.iter().map(|charge| charge.tag).collect()
}
