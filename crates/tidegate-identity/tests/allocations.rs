//! A request costs no allocation once the buffer has grown. Alone in its file, since the counter sees
//! every thread of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use http::{HeaderMap, HeaderValue};
use tidegate_core::Timestamp;
use tidegate_identity::{
    Attributes, Extract, Identity, IdentityConfig, RequestParts, Source, Trust,
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of its own
// but a thread-local integer, which needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, so from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn address_method_host_path_and_a_header_need_no_allocation() {
    let mut config = IdentityConfig::new([1; 16]);
    let network = "10.0.0.0/8".parse().expect("a network");
    config.proxies.trust = Trust::Networks(vec![network]);
    config.country.table = vec![("2001:db8::/32".parse().expect("a network"), "DE".into())];
    config.extract = vec![Extract::new(Source::header("x-tenant").expect("a header"))];
    config.api_key = vec![Source::Query("key".into())];
    let identity = Identity::new(config).expect("settings");

    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("API.example.com:443"));
    headers
        .insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, [2001:db8::7]:80, 10.1.1.1"));
    headers.insert("x-tenant", HeaderValue::from_static("acme"));
    let peer = Some("10.0.0.9".parse().expect("an address"));
    let request = RequestParts::new(peer, b"GET", b"/orders/17?key=k%31", &headers);

    let mut attributes = Attributes::new();
    identity.attributes(&request, Timestamp::ZERO, &mut attributes);
    let before = COUNT.get();
    for _ in 0..1000 {
        identity.attributes(&request, Timestamp::ZERO, &mut attributes);
        std::hint::black_box(attributes.list());
    }
    assert_eq!(COUNT.get() - before, 0);
    let names: Vec<_> = attributes.iter().map(|attribute| attribute.name).collect();
    assert_eq!(names, ["ip", "country", "method", "host", "path", "api_key", "header.x-tenant"]);
}

#[test]
fn the_counter_counts() {
    let before = COUNT.get();
    std::hint::black_box(Box::new(1));
    assert_eq!(COUNT.get() - before, 1);
}
