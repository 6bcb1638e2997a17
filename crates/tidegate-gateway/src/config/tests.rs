//! Settings files as people write them, and what a gateway makes of them.

use std::net::IpAddr;
use std::path::Path;

use tidegate_rules::{ParseOptions, RuleSet, Source};
use tidegate_server::Settings;
use tidegate_server::config::{RulesFrom, file};

use super::{GatewayLayer, GatewaySettings};

/// What a file says, or what is said about it.
fn read(text: &str) -> Result<GatewaySettings, String> {
    let source = Source::new("gateway.yaml", text);
    let parsed = file::parse_with(&source, Path::new("/etc"), GatewayLayer::of_file);
    let (daemon, gateway) = parsed.map_err(|report| report.to_string())?;
    let daemon = Settings::new(daemon).map_err(|error| error.to_string())?;
    gateway.settings(daemon).map_err(|error| error.to_string())
}

/// The same for a file that can be used, with an upstream behind all routes.
fn used(text: &str) -> GatewaySettings {
    let text = format!("upstream: http://127.0.0.1:1\n{text}");
    read(&text).unwrap_or_else(|report| panic!("{text}\n{report}"))
}

/// What is said about a file that cannot be used. The line that is meant is counted from its first.
fn refused(text: &str, line: usize, words: &[&str]) {
    let file = format!("{text}\nupstream: http://127.0.0.1:1\n");
    refused_alone(&file, line, words);
}

/// The same without an upstream.
fn refused_alone(text: &str, line: usize, words: &[&str]) {
    let Err(report) = read(text) else { panic!("it is taken:\n{text}") };
    let place = format!("gateway.yaml:{line}:");
    for words in [&place[..], " = help: "].iter().chain(words) {
        assert!(report.contains(words), "no {words:?} in\n{report}");
    }
}

fn admits(settings: &GatewaySettings, route: usize, client: &str) -> bool {
    let client: IpAddr = client.parse().unwrap();
    settings.routes[route].addresses.admit(Some(client))
}

#[test]
fn a_list_of_addresses_takes_the_place_of_its_own_kind_alone() {
    let settings = used(
        "allow: [10.0.0.0/8]\ndeny: [10.6.6.6]\nroutes:\n  - { path: /a, deny: [10.7.7.7] }\n  \
         - { path: /b, allow: [127.0.0.0/8, 10.6.6.6] }\n  - { path: /c, deny: [] }\n",
    );
    for (route, admitted, refused) in [
        (0, &["10.1.1.1", "10.6.6.6"][..], &["127.0.0.1", "10.7.7.7"][..]),
        (1, &["127.0.0.1"], &["10.1.1.1", "10.6.6.6"]),
        (2, &["10.1.1.1", "10.6.6.6"], &["127.0.0.1"]),
    ] {
        for client in admitted {
            assert!(admits(&settings, route, client), "{route}: {client}");
        }
        for client in refused {
            assert!(!admits(&settings, route, client), "{route}: {client}");
        }
    }
}

#[test]
fn an_address_in_its_longer_form_is_the_same_address() {
    for mapped in ["::ffff:127.0.0.1", "::ffff:127.0.0.0/104", "::ffff:0:0/96"] {
        let denying = used(&format!("deny: [\"{mapped}\"]"));
        assert!(!admits(&denying, 0, "127.0.0.1") && admits(&denying, 0, "::1"), "{mapped}");
        let allowing = used(&format!("allow: [\"{mapped}\"]"));
        assert!(admits(&allowing, 0, "127.0.0.1") && !admits(&allowing, 0, "::1"), "{mapped}");
        assert!(admits(&allowing, 0, "::ffff:127.0.0.1"), "{mapped}");
    }
}

#[test]
fn networks_of_ipv6_hold_no_address_of_ipv4() {
    let settings = used("deny: [\"::/0\"]");
    assert!(!admits(&settings, 0, "2001:db8::1") && admits(&settings, 0, "127.0.0.1"));
    let settings = used("deny: [\"::/0\", 0.0.0.0/0]");
    assert!(!admits(&settings, 0, "2001:db8::1") && !admits(&settings, 0, "127.0.0.1"));
}

#[test]
fn a_short_prefix_on_a_mapped_address_is_refused_and_the_entry_is_named() {
    let list = "allow:\n  - 192.0.2.0/24\n  - \"::ffff:10.0.0.0/8\"";
    refused(list, 3, &["`allow` cannot be `::ffff:10.0.0.0/8`", "write `10.0.0.0/8`"]);
    refused("deny: [ \"::ffff:0:0/95\" ]", 1, &["`::ffff:0:0/95`"]);
    refused("deny:\n  - 192.0.2.0/24\n  - example.com", 3, &["`example.com`", "`10.0.0.0/8`"]);
    refused("deny: [ 10.0.0.0/33 ]", 1, &["`10.0.0.0/33`"]);
}

#[test]
fn a_list_that_allows_nobody_is_refused() {
    refused("allow: []", 1, &["`allow` is empty", "0.0.0.0/0"]);
    refused("routes:\n  - path: /a\n    allow: []", 3, &["`allow` is empty"]);
}

#[test]
fn half_of_a_certificate_is_refused_and_so_are_two_places_for_it() {
    refused("tls_cert: cert.pem", 1, &["`tls_key` is missing"]);
    refused("tls_key: key.pem", 1, &["`tls_cert` is missing"]);
    let pair = "tls_cert: cert.pem\ntls_key: key.pem";
    let both = format!("{pair}\ntls: [ {{ certificate: a.pem, key: a-key.pem }} ]");
    refused(&both, 3, &["`tls` stands beside `tls_cert`"]);
    refused("tls_key: key.pem\ntls: [ { certificate: a.pem, key: k.pem } ]", 2, &["`tls_key`"]);
    refused("tls: []", 1, &["`tls` is empty"]);
    assert_eq!(used(pair).certificates.len(), 1);
    assert_eq!(used("tls: [ { certificate: a.pem, key: k.pem } ]").certificates.len(), 1);
    assert_eq!(used("").certificates.len(), 0);
}

#[test]
fn who_names_an_upstream_means_no_folder_and_the_other_way_round() {
    let settings = read(
        "folder: www\nroutes:\n  - path: /files\n  - { path: /api, upstream: http://127.0.0.1:1 }\n",
    );
    let settings = settings.unwrap();
    let told = settings.routes.iter().map(|route| (route.folder.is_some(), route.servers.len()));
    assert_eq!(told.collect::<Vec<_>>(), [(true, 0), (false, 1)]);
    let settings = used("routes:\n  - path: /api\n  - { path: /files, folder: www }\n");
    let told = settings.routes.iter().map(|route| (route.folder.is_some(), route.servers.len()));
    assert_eq!(told.collect::<Vec<_>>(), [(false, 1), (true, 0)]);
}

#[test]
fn an_upstream_and_a_folder_in_one_place_are_refused() {
    let both = "routes:\n  - path: /a\n    folder: www\n    upstream: http://127.0.0.1:1\n";
    refused_alone(both, 3, &["`folder` stands beside `upstream`"]);
    refused("folder: www", 1, &["`folder` stands beside `upstream`"]);
}

#[test]
fn a_time_of_nothing_is_refused_where_nothing_could_be_done_in_it() {
    for name in
        ["head_timeout", "body_timeout", "response_timeout", "idle_timeout", "connect_timeout"]
    {
        for time in ["0", "0s", "0ms"] {
            let words = [&*format!("`{name}` cannot be `{time}`"), "longer than nothing"];
            refused(&format!("{name}: {time}"), 1, &words);
        }
    }
    for name in ["every", "timeout"] {
        let probe = format!("probe:\n  path: /healthz\n  {name}: 0s");
        refused(&probe, 3, &[&format!("`{name}` cannot be `0s`")]);
    }
    let settings = used("keep_alive: 0s");
    assert!(settings.routes[0].upstream.idle_timeout.is_zero(), "no connection is kept");
}

#[test]
fn a_head_has_room_for_what_every_client_sends() {
    refused("head_max: 0", 1, &["`head_max`", "8KiB"]);
    refused("head_max: 8191", 1, &["`head_max`"]);
    assert_eq!(used("head_max: 8KiB").front.head_bytes_max, 8 << 10);
}

#[test]
fn the_rule_in_a_line_is_of_the_domain_at_the_top() {
    for (text, domain) in [
        ("limit: 1/hour per ip", "default"),
        ("domain: api\nlimit: 1/hour per ip", "api"),
        ("domain: api\nlimit: 1/hour per ip\nroutes: [ { domain: web } ]", "api"),
    ] {
        let RulesFrom::Limit(limit) = used(text).daemon.rules else { panic!("it is one rule") };
        let parsed = RuleSet::parse(&[limit.as_rules("limit", "limit")], &ParseOptions::default());
        let rules = parsed.unwrap().rules;
        assert_eq!(rules.domain(domain).map(|domain| domain.rules.len()), Some(1), "{text}");
    }
}

#[test]
fn two_routes_for_the_same_requests_are_refused() {
    refused("routes:\n  - path: /a\n  - path: /a/", 3, &["route 2", "route 1"]);
    refused("routes:\n  - { domain: x }\n  - { domain: y }", 3, &["route 2", "route 1"]);
    let hosts = "routes:\n  - hosts: [a.example, b.example]\n  - hosts: [c.example, B.example]";
    refused(hosts, 3, &["`b.example/`"]);
    let inherited = "hosts: [a.example]\nroutes:\n  - path: /\n  - hosts: [a.example]";
    refused(inherited, 4, &["`a.example/`"]);
    used("routes: [ { path: /a }, { hosts: [a.example], path: /a }, { path: /a/b } ]");
}

#[test]
fn a_list_of_no_routes_is_refused() {
    refused("routes: []", 1, &["`routes` is empty"]);
}

#[test]
fn a_key_or_a_token_that_nobody_can_have_is_not_asked_for() {
    let words = ["nobody", "keys_file", "`identity.token`"];
    refused("auth: { required: true }", 1, &words);
    refused("routes:\n  - path: /a\n    auth: { header: x-key }", 3, &words);
    used("auth: { required: false }");
    used("auth: { keys_file: keys.txt }");
    let secret = "identity: { token: { keys: [ { secret_file: secret } ] } }";
    let Err(report) = read(&format!("upstream: http://127.0.0.1:1\nauth: {{}}\n{secret}")) else {
        panic!("the file with the secret is not there")
    };
    assert!(!report.contains("nobody"), "{report}");
}

#[test]
fn what_is_asked_at_the_top_counts_for_routes_that_ask_for_nothing_else() {
    let keys = "{ keys_file: keys.txt }";
    let routes = |last: &str| {
        format!(
            "auth: {{ required: true }}\nroutes:\n  - {{ path: /a, auth: {keys} }}\n  - {{ path: /b{last} }}"
        )
    };
    let settings = used(&routes(&format!(", auth: {keys}")));
    for route in settings.routes {
        assert!(route.auth.is_some_and(|auth| auth.is_required && auth.keys.is_some()));
    }
    used(&routes(", auth: { required: false }"));
    refused(&routes(""), 1, &["nobody", "keys_file"]);
    refused(&routes(", auth: { header: x-key }"), 4, &["nobody", "keys_file"]);
}

#[test]
fn hosts_that_no_request_can_have_are_refused() {
    for host in [
        "foo*.bar",
        "a.example:8080",
        "http://a.example",
        "*example.com",
        "*.",
        "a b",
        "a.example/x",
        "a.example.",
        "ü.example",
        "a.*.example",
    ] {
        let list = format!("routes:\n  - path: /a\n    hosts: [ shop.example, \"{host}\" ]");
        refused(&list, 3, &[&format!("`hosts` cannot be `{host}`"), "shop.example"]);
    }
    refused("hosts: []", 1, &["`hosts` is empty"]);
    let hosts = "hosts: [ \"*\", \"*.Shop.example\", a_b.example, 192.0.2.1, \"[2001:DB8::1]\" ]";
    let settings = used(hosts);
    let known = ["*", "*.shop.example", "a_b.example", "192.0.2.1", "[2001:db8::1]"];
    assert_eq!(settings.routes[0].hosts, known);
}

#[test]
fn paths_that_no_request_can_have_are_refused() {
    for (path, help) in [
        ("/a?b=c", "write `/a`"),
        ("/a#b", "write `/a`"),
        ("/api/*", "without `*`"),
        ("//a/./b", "write `/a/b`"),
        ("/%61pi/", "write `/api`"),
        ("api", "begins with `/`"),
    ] {
        refused(&format!("routes:\n  - path: \"{path}\""), 2, &["path", help]);
    }
    for path in ["/", "/api", "/api/", "/a b/ü"] {
        assert_eq!(used(&format!("path: {path}")).routes[0].path, path);
    }
}

#[test]
fn ports_numbers_and_names_that_cannot_be_are_refused() {
    for port in ["65536", "99999", "0"] {
        let url = format!("upstream: http://127.0.0.1:{port}");
        refused_alone(&url, 1, &["`upstream` cannot be"]);
    }
    refused("attempts: 17", 1, &["`attempts`", "from 1 to 16"]);
    assert_eq!(used("attempts: 16").routes[0].upstream.attempts, 16);
    refused("balance: \"hash:us er\"", 1, &["`balance` cannot be `hash:us er`"]);
    refused("shed_first: { attribute: \"us er\", values: [a] }", 1, &["`attribute` cannot be"]);
    refused("shed_first: { attribute: plan, values: [] }", 1, &["`values` is empty"]);
}

#[test]
fn statuses_that_fail_are_spelt_as_in_rules_and_are_none_that_clients_can_cause() {
    let settings = used(
        "fails_on: [500, 502-504]\nroutes:\n  - path: /a\n  - { path: /b, fails_on: 5xx }\n  - { path: /c, fails_on: [] }\n",
    );
    let fails = |route: usize, status: u16| {
        settings.routes[route].upstream.fails_on.iter().any(|statuses| statuses.hold(status))
    };
    for (route, statuses) in [(0, &[500, 502, 503, 504][..]), (1, &[500, 501, 599]), (2, &[])] {
        assert!(statuses.iter().all(|status| fails(route, *status)), "{route}");
    }
    assert!(!fails(0, 501) && !fails(0, 505) && !fails(1, 404) && !fails(2, 503));
    assert!(used("").routes[0].upstream.fails_on.is_empty(), "an answer is an answer");
    for wrong in ["404", "4xx", "429-503", "600", "50x", "503-502", "often"] {
        let list = format!("fails_on:\n  - 503\n  - {wrong}");
        refused(&list, 3, &[&format!("`fails_on` cannot be `{wrong}`"), "`502-504`"]);
    }
}
