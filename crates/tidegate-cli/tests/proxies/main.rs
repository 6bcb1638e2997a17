//! Real proxies before a real application, asking the real daemon, with the configurations that
//! `docs/proxies` shows, and other limiters beside the rules that `docs/migrating.md` gives for them. What a
//! client sees is what is tested.

#![cfg(unix)]

mod app;
mod caddy;
mod claims;
mod client;
mod envoy;
mod haproxy;
mod migrating;
mod nginx;
mod page;
mod process;
mod stage;

#[test]
fn every_block_that_a_page_marks_as_tested_is_run_by_a_test() {
    let mut marked = Vec::new();
    let pages = std::fs::read_dir(page::folder()).expect("the pages");
    let pages = pages.map(|entry| entry.expect("a page").path());
    for path in pages.chain([page::folder().join("../migrating.md")]) {
        let page = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a text");
        marked.extend(page::blocks(&text).into_iter().map(|(name, _)| format!("{page}: {name}")));
    }
    marked.sort();
    assert_eq!(
        marked,
        [
            "README.md: rules.yaml",
            "README.md: tidegate.yaml",
            "caddy.md: Caddyfile",
            "caddy.md: Caddyfile.short",
            "envoy.md: envoy.yaml",
            "haproxy.md: haproxy.cfg",
            "migrating.md: governor.yaml",
            "migrating.md: limit_req.conf",
            "migrating.md: limit_req.yaml",
            "migrating.md: local_ratelimit.yaml",
            "migrating.md: local_ratelimit_rules.yaml",
            "nginx.md: nginx.conf",
        ]
    );
}
