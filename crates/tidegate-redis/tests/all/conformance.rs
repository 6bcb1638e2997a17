//! The suite of all stores, over real servers in every way of running them.

mod redis_7 {
    mod single {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Redis, Mode::Single), block_on);
    }

    mod tls_and_password {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Redis, Mode::Tls), block_on);
    }

    mod sentinel {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Redis, Mode::Sentinel), block_on);
    }

    mod cluster {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Redis, Mode::Cluster), block_on);
    }
}

mod valkey_9 {
    mod single {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Valkey, Mode::Single), block_on);
    }

    mod tls_and_password {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Valkey, Mode::Tls), block_on);
    }

    mod sentinel {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Valkey, Mode::Sentinel), block_on);
    }

    mod cluster {
        use crate::support::{Kind, Mode, Served, block_on};

        tidegate_store::conformance_tests!(Served::on(Kind::Valkey, Mode::Cluster), block_on);
    }
}
