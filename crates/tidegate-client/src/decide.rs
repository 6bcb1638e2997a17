//! The client as the one who decides for the middleware: limits of a daemon, kept in front of a service
//! elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Call;
use tidegate_tower::decide::{Asked, Deciding};
use tidegate_tower::{Decide, Decided, Keeper, Standing, Undecided};

use crate::answer::Answer;
use crate::client::Client;
use crate::error::ClientError;

impl Decide for Client {
    type Decided = Answer;

    fn decide_now(&self, _: &Call<'_>) -> Option<Result<Answer, Undecided>> {
        None
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<Answer> {
        Box::pin(async move {
            self.decide_asked(&asked).await.map_err(|error| match error {
                ClientError::Call => Undecided::Request,
                _ => Undecided::Unavailable,
            })
        })
    }

    fn responded(self: &Arc<Self>, decided: &mut Answer, status: u16) {
        self.count_response_later(decided, status);
    }

    fn keeper(self: &Arc<Self>, decided: &Answer) -> Option<Keeper> {
        Client::keeper(self, decided)
    }

    fn ended(self: &Arc<Self>, decided: Answer) {
        self.release_later(decided);
    }

    fn withdrawn(self: &Arc<Self>, decided: Answer) {
        self.refund_later(decided);
    }
}

impl Decided for Answer {
    fn is_allowed(&self) -> bool {
        Answer::is_allowed(self)
    }

    fn delay(&self) -> Duration {
        Answer::delay(self)
    }

    fn standing(&self) -> Standing<'_> {
        Answer::standing(self)
    }

    fn turned_away(&self, retry_after: Duration) -> Standing<'_> {
        Answer::turned_away(self, retry_after)
    }

    fn holds_places(&self) -> bool {
        Answer::holds_places(self)
    }

    fn counts_responses(&self) -> bool {
        Answer::counts_responses(self)
    }
}
