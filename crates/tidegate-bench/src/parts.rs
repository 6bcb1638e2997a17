//! The parts of a benchmark, and which of them `--only` asks for.

/// What can be measured by itself: every part with its name, in the order in which they are run.
pub(crate) trait Part: Copy + 'static {
    const ALL: &'static [(&'static str, Self)];
}

/// The parts of these names, or all of them where none is named.
pub(crate) fn chosen<P: Part>(names: &[String]) -> Result<Vec<(&'static str, P)>, String> {
    let is_part = |name: &&String| P::ALL.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !is_part(name)) {
        let known: Vec<&str> = P::ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("no part `{unknown}`; there is {}", known.join(", ")));
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(P::ALL.iter().copied().filter(|(name, _)| is_wanted(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Numbered(u8);

    impl Part for Numbered {
        const ALL: &'static [(&'static str, Self)] = &[("one", Self(1)), ("two", Self(2))];
    }

    #[test]
    fn all_parts_are_run_unless_some_are_named() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            chosen::<Numbered>(&names)
        };
        assert_eq!(chosen(&[]).unwrap().len(), 2);
        assert_eq!(chosen(&["two"]).unwrap(), [("two", Numbered(2))]);
        assert_eq!(chosen(&["three"]).unwrap_err(), "no part `three`; there is one, two");
    }
}
