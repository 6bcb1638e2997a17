//! The suite of all stores, over real servers.

mod support;

mod redis_7 {
    use crate::support::{Kind, Served, block_on};

    tidegate_store::conformance_tests!(Served::start(Kind::Redis), block_on);
}

mod valkey_9 {
    use crate::support::{Kind, Served, block_on};

    tidegate_store::conformance_tests!(Served::start(Kind::Valkey), block_on);
}
