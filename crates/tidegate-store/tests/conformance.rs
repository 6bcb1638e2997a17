//! The suite over the stores of this crate.

mod table {
    use tidegate_store::{Table, TableConfig, conformance};

    fn table() -> Table {
        let config = TableConfig { entry_bytes: 1 << 20, wide_bytes: 1 << 20 };
        Table::new(config, conformance::START).expect("a small table")
    }

    tidegate_store::conformance_tests!(table(), conformance::block_on);
}

mod model {
    use tidegate_store::conformance::{self, Model};

    tidegate_store::conformance_tests!(Model::default(), conformance::block_on);
}
