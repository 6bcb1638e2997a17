//! Sixty seconds to the first denial: two calls a minute, and the third is told when to come back.

use tidegate::{BuildError, Limiter};

fn main() -> Result<(), BuildError> {
    let limiter = Limiter::new("2/minute")?;
    for call in 1..=3 {
        let decision = limiter.check("ann");
        match decision.retry_after() {
            None => println!("call {call}: allowed, {} left", decision.remaining()),
            Some(wait) => println!("call {call}: denied, come back in {:.1} s", wait.as_secs_f64()),
        }
    }
    Ok(())
}
