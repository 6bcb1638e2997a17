//! What the normal form of paths promises, spelling by spelling and for any bytes.

use proptest::prelude::*;

use super::*;

fn normal(path: &str) -> String {
    String::from_utf8_lossy(&normalise(path.as_bytes())).into_owned()
}

const SPELLINGS_OF_LOGIN: &[&str] = &[
    "/login",
    "login",
    "/login/",
    "/login//",
    "//login",
    "///login",
    "/./login",
    "/login/.",
    "/login/./",
    "/login/./.",
    "/../login",
    "/../../login",
    "/a/../login",
    "/a/b/../../login",
    "/login/a/..",
    "/login/a/../",
    "/login/..//login",
    "/%6cogin",
    "/%6Cogin",
    "/%6c%6f%67%69%6e",
    "/%6C%6F%67%69%6E",
    "/l%6Fgin",
    "%2Flogin",
    "%2flogin",
    "/%2Flogin",
    "/%2f%2flogin",
    "/login%2F",
    "/login%2f",
    "/login%2F%2F",
    "\\login",
    "/\\login",
    "/login\\",
    "\\\\login",
    "%5Clogin",
    "%5clogin",
    "/login%5C",
    "/%2e/login",
    "/%2E/login",
    "/%2e%2e/login",
    "/.%2e/login",
    "/a/%2e%2E/login",
    "/a%2F..%2Flogin",
    "/a%2f%2e%2e%2flogin",
    "/a\\..\\login",
    "/a%5c..%5clogin",
    "/login?",
    "/login?user=1",
    "/login?next=/a/../b",
    "/login??",
    "/login/?x",
    "/login#",
    "/login#top",
    "/login#?x",
    "/login?x#y",
    "/login;",
    "/login;x",
    "/login;x=y",
    "/login;jsessionid=1;b=2",
    "/login;x=%2Fy",
    "/login;x=y/",
    "/login/;x=y",
    "/;x=y/login",
    "/a/..;/login",
    "/a/..;x=y/login",
    "/.;/login",
    "/login/.;x",
    "/login;x?y",
    "/login.",
    "/login..",
    "/login./",
    "/login%2e",
    "/login.;x",
    "http://example.com/login",
    "HTTPS://example.com:8443/login",
    "http://user@example.com//login?x",
    "http://[::1]:80/login",
    "http://example.com\\login",
    "ws+unix://x/./login",
];

#[test]
fn all_spellings_of_login_are_one_path() {
    assert!(SPELLINGS_OF_LOGIN.len() >= 60);
    for spelling in SPELLINGS_OF_LOGIN {
        assert_eq!(normal(spelling), "/login", "{spelling}");
    }
}

#[test]
fn different_paths_stay_different() {
    let paths = [
        "/",
        "/login",
        "/Login",
        "/LOGIN",
        "/log/in",
        "/logi",
        "/login2",
        "/login/x",
        "/a/login",
        "/login%00",
        "/login%0A",
        "/login%7F",
        "/login%25",
        "/login%20",
        "/login+",
        "/login%3F",
        "/login%23",
        "/login%3B",
        "/login%252F",
        "/login%255C",
        "/%256cogin",
        "/log%in",
        "/.login",
        "/..login",
        "/.../login",
        "/login/...",
        "/lo.gin",
        "/login:443",
        "/login=",
        "/login,",
        "/l\u{f6}gin",
        "/login\u{301}",
        "/login@",
        "/login&x",
        "/%C0%AFlogin",
        "/\u{ff0f}login",
    ];
    let mut normals: Vec<Vec<u8>> =
        paths.iter().map(|path| normalise(path.as_bytes()).into_owned()).collect();
    normals.sort();
    normals.dedup();
    assert_eq!(normals.len(), paths.len());
}

#[test]
fn each_spelling_becomes_what_is_documented() {
    for (spelling, expected) in [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        (".", "/"),
        ("/..", "/"),
        ("/../..", "/"),
        ("/a/..", "/"),
        ("?x", "/"),
        ("#x", "/"),
        (";x", "/"),
        ("*", "/*"),
        ("http://host", "/"),
        ("http://host?x", "/"),
        ("http://", "/"),
        ("http:/x", "/http:/x"),
        ("1http://x", "/1http:/x"),
        ("/http://x/y", "/http:/x/y"),
        ("/a%2Fb", "/a/b"),
        ("/a%5Cb", "/a/b"),
        ("/a%252Fb", "/a%252Fb"),
        ("/a%252fb", "/a%252fb"),
        ("/a%3fb", "/a%3Fb"),
        ("/a\u{0}b", "/a%00b"),
        ("/a\tb", "/a%09b"),
        ("/a\u{7f}b", "/a%7Fb"),
        ("/a%20b", "/a b"),
        ("/a%2Bb", "/a+b"),
        ("/%C3%B6", "/\u{f6}"),
        ("/100%", "/100%25"),
        ("/100%25", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%4", "/%254"),
        ("/%%34%31", "/%2541"),
        ("/%u002e", "/%25u002e"),
        ("/...", "/..."),
        ("/.../x", "/.../x"),
        ("/a.b./c", "/a.b/c"),
        ("/a/b/../../../c/./d/", "/c/d"),
    ] {
        assert_eq!(normal(spelling), expected, "{spelling:?}");
    }
}

#[test]
fn normal_paths_are_handed_back_without_allocation() {
    for path in
        ["/", "/login", "/a/b.c/d-e_f~g", "/.well-known/x", "/a%25b%3F%23%3B%00%1F%7F", "/{id}/*"]
    {
        assert!(matches!(normalise(path.as_bytes()), Cow::Borrowed(_)), "{path}");
    }
}

fn is_promised(path: &[u8]) -> bool {
    let inner = path.strip_prefix(b"/").unwrap_or_default();
    path.starts_with(b"/")
        && (inner.is_empty()
            || inner
                .split(|&byte| byte == b'/')
                .all(|segment| !matches!(segment, b"" | b"." | b"..")))
}

/// Bytes that mean something are common, so that they meet.
fn paths() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(&b"/\\.%;?#:{25fFcCeEaz\0\x7f\xff"[..]),
        prop::sample::select(&b"/.%25"[..]),
        any::<u8>(),
    ];
    prop::collection::vec(byte, 0..24)
}

proptest! {
    #[test]
    fn normal_form_of_a_normal_form_is_itself(path in paths()) {
        let once = normalise(&path).into_owned();
        prop_assert_eq!(normalise(&once).into_owned(), once);
    }

    #[test]
    fn normal_form_is_as_promised_for_any_bytes(path in paths()) {
        let once = normalise(&path).into_owned();
        prop_assert!(is_promised(&once), "{:?}", once);
    }

    #[test]
    fn quick_check_agrees_with_the_rewriting(path in paths()) {
        let rewritten = rewrite(&path);
        if is_normal(&path) {
            prop_assert_eq!(&rewritten, &path);
        } else if rewritten == path {
            // Only a segment of dots is taken the long way for nothing.
            prop_assert!(path.windows(3).any(|dots| dots == b"..."));
        }
    }

    #[test]
    fn look_at_blocks_agrees_with_the_look_at_bytes(path in paths(), plain in "(/[a-z.]{0,9}){0,4}") {
        for path in [&path, plain.as_bytes()] {
            let expected = is_normal(path) && !path.iter().any(|byte| b"%{".contains(byte));
            prop_assert_eq!(is_plain(path), expected && path.len() > 4);
        }
    }

    /// Long paths with something odd in any place, most of them between the first block and the last.
    #[test]
    fn look_at_blocks_finds_what_is_odd_anywhere_in_a_long_path(
        plain in "(/[a-z]{1,9}){4,9}",
        odd in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(&["%", "./", "//", ";", "{", "\x01", "\\", "z"][..])),
            0..3,
        ),
    ) {
        let mut path = plain;
        for (at, odd) in odd {
            path.insert_str(at.index(path.len()), odd);
        }
        let path = path.as_bytes();
        let expected = is_normal(path) && !path.iter().any(|byte| b"%{".contains(byte));
        prop_assert_eq!(is_plain(path), expected);
    }

    #[test]
    fn encoding_any_byte_changes_nothing(path in "[a-z/.]{0,12}", at in any::<prop::sample::Index>()) {
        if !path.is_empty() {
            let at = at.index(path.len());
            let encoded = format!("{}%{:02x}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]);
            prop_assert_eq!(normal(&encoded), normal(&path));
        }
    }
}
