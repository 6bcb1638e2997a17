//! Paths with places in them: `/orders/{id}`, `/orders/*/items`, `/orders/**`.
//!
//! A place is a whole segment. Text with a `*` anywhere is a [`Glob`](crate::glob::Glob).

use std::fmt;

use super::normalise;

/// A path with places in it.
///
/// `{name}` and `*` stand for one segment, `**` at the end for any number of them, also none.
///
/// ```
/// use tidegate_rules::path::PathTemplate;
///
/// let template = PathTemplate::parse("/orders/{id}/**")?;
/// assert!(template.matches(b"/orders/7"));
/// assert!(template.matches(b"/orders/7/items/1"));
/// assert!(!template.matches(b"/orders"));
///
/// let error = PathTemplate::parse("/orders/../login").unwrap_err();
/// assert_eq!(error.to_string(), "a path template must be in normal form: write `/login`");
/// # Ok::<(), tidegate_rules::path::PathTemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    text: String,
    segments: Box<[Segment]>,
}

/// One segment of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    /// This text.
    Literal(Box<[u8]>),
    /// One segment, whatever it is.
    One,
    /// All that follow, also none. It is the last.
    Rest,
}

impl PathTemplate {
    /// Checks a text, which must be in the normal form of paths already: one that is not would
    /// never match.
    pub fn parse(text: &str) -> Result<Self, PathTemplateError> {
        let Some(inner) = text.strip_prefix('/') else {
            return Err(PathTemplateError::NoSlash { text: text.to_owned() });
        };
        let normal = normalise(text.as_bytes());
        if *normal != *text.as_bytes() {
            let normal = String::from_utf8_lossy(&normal).into_owned();
            return Err(PathTemplateError::NotNormal { normal });
        }
        let mut segments = Vec::new();
        for segment in inner.split('/').filter(|segment| !segment.is_empty()) {
            if segments.last() == Some(&Segment::Rest) {
                return Err(PathTemplateError::RestInTheMiddle);
            }
            segments.push(Segment::parse(segment)?);
        }
        Ok(Self { text: text.to_owned(), segments: segments.into() })
    }

    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path has this shape. The path must be in [normal form](normalise).
    pub fn matches(&self, normal_path: &[u8]) -> bool {
        let mut path = segments_of(normal_path);
        for segment in &self.segments {
            match segment {
                Segment::Rest => return true,
                Segment::One if path.next().is_some() => {}
                Segment::Literal(text) if path.next() == Some(text) => {}
                Segment::One | Segment::Literal(_) => return false,
            }
        }
        path.next().is_none()
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether there is no place in it, so that it matches its own text only.
    pub(crate) fn is_literal(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// The same template in lower case, for paths that are so too.
    pub(crate) fn to_lowercase(&self) -> Self {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Segment::Literal(text.to_ascii_lowercase().into()),
            Segment::One => Segment::One,
            Segment::Rest => Segment::Rest,
        });
        Self { segments: segments.collect(), text: self.text.to_ascii_lowercase() }
    }
}

/// The segments of a path in normal form; the root has none.
pub(crate) fn segments_of(normal_path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let inner = normal_path.strip_prefix(b"/").unwrap_or(normal_path);
    inner.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty())
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PathTemplateError> {
        let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let wrong = |problem: fn(String) -> PathTemplateError| Err(problem(text.to_owned()));
        match (text, name) {
            ("*", _) => Ok(Self::One),
            ("**", _) => Ok(Self::Rest),
            (_, Some(name)) if is_name(name) => Ok(Self::One),
            (_, Some(_)) => wrong(|segment| PathTemplateError::BadName { segment }),
            _ if text.contains('{') && !text.contains('}') => {
                wrong(|segment| PathTemplateError::Unclosed { segment })
            }
            _ if text.contains(['{', '}', '*']) => {
                wrong(|segment| PathTemplateError::NotWhole { segment })
            }
            _ => Ok(Self::Literal(text.as_bytes().into())),
        }
    }
}

/// Names say nothing to the matching; they are kept to what is a name everywhere, since frameworks
/// give other characters meanings that this has not, as in `{id*}` or `{id:int}`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-'))
}

/// Why a text is no path template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathTemplateError {
    /// It does not begin with a slash.
    NoSlash {
        /// The text.
        text: String,
    },
    /// It is a spelling of another path, so no request would match it.
    NotNormal {
        /// The path that it is a spelling of.
        normal: String,
    },
    /// `**` is not the last segment.
    RestInTheMiddle,
    /// A `{` without its `}`.
    Unclosed {
        /// The segment.
        segment: String,
    },
    /// What stands between braces is not a name.
    BadName {
        /// The segment.
        segment: String,
    },
    /// A place that is only a part of a segment.
    NotWhole {
        /// The segment.
        segment: String,
    },
}

impl fmt::Display for PathTemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlash { text } => {
                write!(f, "a path template must begin with `/`: write `/{text}`")
            }
            Self::NotNormal { normal } => {
                write!(f, "a path template must be in normal form: write `{normal}`")
            }
            Self::RestInTheMiddle => {
                f.write_str("`**` must be the last segment: use `*` for one segment in the middle")
            }
            Self::Unclosed { segment } => {
                write!(
                    f,
                    "`{segment}` has a `{{` without a `}}`: write `{{name}}` or `*` for one segment"
                )
            }
            Self::BadName { segment } => write!(
                f,
                "`{segment}` is not a name in braces: use letters, digits, `_` and `-`, as in `{{id}}`; \
                 `**` at the end takes the rest of the path",
            ),
            Self::NotWhole { segment } => write!(
                f,
                "`{segment}` is only partly a placeholder: `{{name}}`, `*` and `**` stand for whole segments; \
                 for a part of one use `glob`",
            ),
        }
    }
}

impl std::error::Error for PathTemplateError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(template: &str, path: &str) -> bool {
        PathTemplate::parse(template).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn places_stand_for_whole_segments() {
        for (template, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/login", "/login", true),
            ("/login", "/Login", false),
            ("/login", "/login/x", false),
            ("/orders/{id}", "/orders/7", true),
            ("/orders/{id}", "/orders", false),
            ("/orders/{id}", "/orders/7/items", false),
            ("/orders/*/items", "/orders/7/items", true),
            ("/orders/*/items", "/orders/items", false),
            ("/orders/**", "/orders", true),
            ("/orders/**", "/orders/7", true),
            ("/orders/**", "/orders/7/items/1", true),
            ("/orders/**", "/orders2", false),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/*", "/", false),
            ("/*/**", "/", false),
            ("/*/**", "/a", true),
        ] {
            assert_eq!(matches(template, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_is_accepted() {
        for (text, message) in [
            ("", "a path template must begin with `/`: write `/`"),
            ("login", "a path template must begin with `/`: write `/login`"),
            ("/a/../b", "a path template must be in normal form: write `/b`"),
            ("/%41", "a path template must be in normal form: write `/A`"),
            ("/a//b", "a path template must be in normal form: write `/a/b`"),
            ("/a/", "a path template must be in normal form: write `/a`"),
            ("/a?b", "a path template must be in normal form: write `/a`"),
            ("/a/**/b", "`**` must be the last segment: use `*` for one segment in the middle"),
            ("/{id", "`{id` has a `{` without a `}`: write `{name}` or `*` for one segment"),
        ] {
            assert_eq!(PathTemplate::parse(text).unwrap_err().to_string(), message);
        }
        for text in ["/{}", "/{id*}", "/{*rest}", "/{a.b}"] {
            let error = PathTemplate::parse(text).unwrap_err();
            assert!(matches!(error, PathTemplateError::BadName { .. }), "{text}");
        }
        for text in ["/a*", "/*.png", "/***", "/{a}b", "/a{b}", "/a}"] {
            let error = PathTemplate::parse(text).unwrap_err();
            assert!(matches!(error, PathTemplateError::NotWhole { .. }), "{text}");
        }
    }

    #[test]
    fn lower_case_template_matches_lower_case_paths() {
        let template = PathTemplate::parse("/Orders/{ID}").unwrap().to_lowercase();
        assert!(template.matches(b"/orders/x"));
        assert!(!template.is_literal() && PathTemplate::parse("/A").unwrap().is_literal());
    }

    proptest! {
        #[test]
        fn template_without_places_matches_itself_only(text in "(/[ab]{1,2}){0,3}", path in "(/[ab]{1,2}){0,3}") {
            let (text, path) = (normalise(text.as_bytes()), normalise(path.as_bytes()));
            let template = PathTemplate::parse(std::str::from_utf8(&text).unwrap()).unwrap();
            prop_assert!(template.is_literal());
            prop_assert_eq!(template.matches(&path), text == path);
        }

        #[test]
        fn any_text_is_a_template_or_an_error(text in "[/a{}*.%;]{0,12}") {
            if let Ok(template) = PathTemplate::parse(&text) {
                prop_assert_eq!(template.as_str(), text);
            }
        }
    }
}
