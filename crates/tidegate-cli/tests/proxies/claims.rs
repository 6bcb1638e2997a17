//! What a client meets behind any proxy that asks the daemon over HTTP. Each proxy proves all of it.

use serde_json::Value;

use crate::client::{Answer, Client};
use crate::process::wait_for;
use crate::stage::Stage;

/// How many logins the rule of the pages allows each client, in an hour.
pub(crate) const LOGINS: u64 = 3;
/// At three an hour, the next one is possible after a third of it.
const WAIT_SECS_MAX: u64 = 1200;

/// Makes a test of each claim, for the proxy that `$put_on` puts on a stage.
macro_rules! prove {
    ($proxy:literal, $put_on:path) => {
        fn on_stage(name: &str) -> Stage {
            $put_on(Stage::set(&format!("{}-{name}", $proxy)))
        }

        fn on_stage_in_a_hurry(name: &str) -> Stage {
            $put_on(Stage::set_in_a_hurry(&format!("{}-{name}", $proxy)))
        }

        #[test]
        fn an_allowed_client_sees_the_headers_and_the_applications_answer() {
            claims::an_allowed_client_sees_the_headers(&on_stage("allowed"));
        }

        #[test]
        fn a_denied_client_sees_429_retry_after_headers_and_body() {
            claims::a_denied_client_sees_all_of_it(&on_stage("denied"));
        }

        #[test]
        fn a_client_is_known_by_its_address_and_cannot_change_it() {
            claims::a_client_cannot_be_somebody_else(&on_stage("spoofed"));
        }

        #[test]
        fn a_client_cannot_choose_the_rules_it_is_under() {
            claims::a_client_cannot_choose_its_rules(&on_stage("chosen"));
        }

        #[test]
        fn a_client_cannot_get_past_by_what_cannot_be_asked_about() {
            claims::a_client_cannot_make_the_question_fail(&on_stage("unaskable"));
        }

        #[test]
        fn a_rule_in_shadow_lets_everything_through() {
            claims::shadow_lets_through(&on_stage("shadow"));
        }

        #[test]
        fn requests_pass_while_the_daemon_is_dead_and_are_limited_again_after() {
            claims::open_while_dead(on_stage_in_a_hurry("dead"));
        }

        #[test]
        fn requests_pass_soon_while_the_daemon_hangs_and_are_limited_again_after() {
            claims::open_while_hanging(&on_stage_in_a_hurry("hanging"));
        }

        #[test]
        fn an_application_that_fails_is_asked_once_and_its_error_shown() {
            claims::a_failing_application_is_asked_once(&on_stage("failing"));
        }
    };
}
pub(crate) use prove;

fn log_in(client: Client) -> Answer {
    client.post("/login", "name=alice")
}

/// As many logins as the rule allows.
fn use_up(client: Client) {
    for _ in 0..LOGINS {
        let answer = log_in(client);
        assert_eq!(answer.status, 200, "{answer:#?}");
    }
}

pub(crate) fn an_allowed_client_sees_the_headers(stage: &Stage) {
    for left in (0..LOGINS).rev() {
        let answer = log_in(stage.alice());
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(answer.body, "the app got POST /login name=alice");
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3"), "{answer:#?}");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
        let policy = answer.header("ratelimit-policy").expect("a policy");
        assert!(policy.contains("\"login\";q=3;w=3600"), "{policy}");
        let standing = answer.header("ratelimit").expect("where the client stands");
        assert!(standing.contains(&format!("\"login\";r={left}")), "{standing}");
        assert_eq!(answer.header("retry-after"), None, "{answer:#?}");
    }
}

pub(crate) fn a_denied_client_sees_all_of_it(stage: &Stage) {
    use_up(stage.alice());
    let answer = log_in(stage.alice());
    assert_eq!(answer.status, 429, "{answer:#?}");
    let wait = answer.header("retry-after").expect("a time to wait");
    let wait_secs: u64 = wait.parse().expect("whole seconds");
    assert!((1..=WAIT_SECS_MAX).contains(&wait_secs), "{wait_secs}");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("3"), "{answer:#?}");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    assert!(answer.header("ratelimit-policy").expect("a policy").contains("\"login\";q=3;w=3600"));
    assert!(answer.header("ratelimit").expect("where it stands").contains("\"login\";r=0"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let body: Value = serde_json::from_str(&answer.body).expect("a body in JSON");
    assert_eq!(body["error"], "rate_limit_exceeded", "{body}");
    assert_eq!(body["status"], 429);
    let message = format!("Too many requests. Try again after {wait} seconds.");
    assert_eq!(body["message"], message.as_str());
    // Other requests of the same client are none of this rule's business.
    assert_eq!(stage.alice().get("/").body, "the app got GET /");
}

pub(crate) fn a_client_cannot_be_somebody_else(stage: &Stage) {
    use_up(stage.alice());
    for number in 1..=4 {
        let pretended = format!("203.0.113.{number}");
        let (forwarded, real) = (format!("for={pretended}"), pretended.as_str());
        for header in [
            ("X-Forwarded-For", real),
            ("X-Real-IP", real),
            ("Forwarded", forwarded.as_str()),
            ("X-Client-IP", real),
            ("True-Client-IP", real),
        ] {
            let answer = stage.alice().send("POST", "/login", &[header], "");
            assert_eq!(answer.status, 429, "{header:?}: {answer:#?}");
        }
    }
    assert_eq!(log_in(stage.bob()).status, 200, "another client has a limit of its own");
}

pub(crate) fn a_client_cannot_choose_its_rules(stage: &Stage) {
    use_up(stage.alice());
    for query in ["?domain=other", "?cost=0", "?dialect=nginx", "?dialect=forwarded&peek=true"] {
        let answer = stage.alice().post(&format!("/login{query}"), "");
        assert_eq!(answer.status, 429, "{query}: {answer:#?}");
    }
    for name in ["Method", "URI", "Uri", "URL", "Host"] {
        for kind in ["X-Forwarded-", "X-Original-"] {
            let header = (&*format!("{kind}{name}"), "/");
            let answer = stage.alice().send("POST", "/login", &[header], "");
            assert_ne!(answer.status, 200, "{header:?}: {answer:#?}");
        }
    }
}

/// Requests at the edge of what each program takes: one that the proxy takes and the daemon does not would
/// otherwise pass, as if the daemon were dead.
pub(crate) fn a_client_cannot_make_the_question_fail(stage: &Stage) {
    use_up(stage.alice());
    let headers_of = |count: usize, bytes: usize| -> Vec<(String, String)> {
        (0..count).map(|number| (format!("X-Padding-{number}"), "x".repeat(bytes))).collect()
    };
    let mut odd = vec![
        vec![("X-Odd".to_owned(), "caf\u{e9} \u{1f600}".to_owned())],
        vec![("Expect".to_owned(), "100-continue".to_owned())],
        vec![("Upgrade".to_owned(), "websocket".to_owned())],
        vec![("TE".to_owned(), "trailers".to_owned())],
        vec![("Cookie".to_owned(), "a=b; ".repeat(1000))],
    ];
    odd.extend([90, 98, 120, 250].map(|count| headers_of(count, 1)));
    // Around 8 KiB and 16 KiB, where buffers end.
    odd.extend((7_600..8_300).step_by(100).map(|bytes| headers_of(1, bytes)));
    odd.extend((7_400..8_200).step_by(50).map(|bytes| headers_of(2, bytes)));
    odd.extend([4, 8, 20].map(|count| headers_of(count, 7_900)));
    // This one is handed on to the daemon by all of them.
    odd.extend(
        (14_500..15_500)
            .step_by(100)
            .map(|bytes| vec![("X-Api-Key".to_owned(), "x".repeat(bytes))]),
    );
    odd.push(vec![("X-Api-Key".to_owned(), "x".to_owned()); 90]);
    for headers in &odd {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        refuses(stage, "/login", &headers);
    }
    for length in [4_000, 7_900, 8_100, 15_000] {
        refuses(stage, &format!("/login?{}", "x".repeat(length)), &[]);
    }
}

/// Whatever else it answers, the proxy does not let the request through. It may close the connection.
fn refuses(stage: &Stage, path: &str, headers: &[(&str, &str)]) {
    let answer = stage.alice().connect().expect("a connection").send("POST", path, headers, "");
    let Ok(answer) = answer else { return };
    let size: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    assert!(
        !answer.body.contains("the app got"),
        "{} headers of {size} bytes, a path of {}: passed with {}",
        headers.len(),
        path.len(),
        answer.status
    );
}

pub(crate) fn shadow_lets_through(stage: &Stage) {
    for _ in 0..3 {
        let answer = stage.alice().get("/search");
        assert_eq!((answer.status, answer.body.as_str()), (200, "the app got GET /search"));
    }
    // The rule is there: it has counted them, and would deny the next one.
    let next = r#"{"domain":"web","attributes":{"path":"/search","ip":"127.0.0.2"},"peek":true}"#;
    let json = ("Content-Type", "application/json");
    let decision = stage.direct().send("POST", "/v1/check", &[json], next).body;
    assert!(decision.contains("\"shadow_denied\":true"), "{decision}");
}

pub(crate) fn open_while_dead(mut stage: Stage) {
    use_up(stage.alice());
    stage.kill_daemon();
    for _ in 0..3 {
        let answer = log_in(stage.alice());
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "the app got POST /login name=alice")
        );
        assert_eq!(answer.header("ratelimit"), None, "nobody knows: {answer:#?}");
    }
    stage.start_daemon();
    wait_for_a_denial(&stage);
}

pub(crate) fn open_while_hanging(stage: &Stage) {
    wait_for_a_denial(stage);
    stage.freeze_daemon();
    for _ in 0..3 {
        let answer = log_in(stage.alice());
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "the app got POST /login name=alice")
        );
        assert_eq!(answer.header("ratelimit"), None, "nobody knows: {answer:#?}");
    }
    stage.thaw_daemon();
    wait_for_a_denial(stage);
}

fn wait_for_a_denial(stage: &Stage) {
    wait_for("a denial", || Some(log_in(stage.alice())).filter(|answer| answer.status == 429));
}

/// A proxy that took its error for the daemon's would ask it again.
pub(crate) fn a_failing_application_is_asked_once(stage: &Stage) {
    let answer = stage.alice().get("/crash");
    assert_eq!(answer.status, 502, "{answer:#?}");
    assert_eq!(stage.app().requests(), 1);
}
