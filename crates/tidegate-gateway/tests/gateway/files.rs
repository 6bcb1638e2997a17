//! Static files through a gateway.

use http::Request;
use http_body_util::Full;
use tidegate_gateway::Running;

use crate::support::{Folder, ask, gateway, get, port, settings, until_idle};

async fn serving(folder: &Folder) -> Running {
    let mut settings = settings(&[]);
    settings.routes[0].folder = Some(folder.0.join("public"));
    "/files".clone_into(&mut settings.routes[0].path);
    gateway(settings).await
}

fn with_files(name: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::create_dir_all(folder.0.join("public/sub")).unwrap();
    folder.write("secret.txt", "secret");
    folder.write("public/index.html", "<h1>home</h1>");
    folder.write("public/sub/a b.txt", "0123456789".repeat(20_000));
    folder
}

#[tokio::test]
async fn files_are_served_whole_in_part_and_once() {
    let folder = with_files("files");
    let running = serving(&folder).await;
    let moved = get(port(&running), "/files?a=b").await;
    assert_eq!(
        (moved.status().as_u16(), &moved.headers()["location"]),
        (301, &"/files/?a=b".parse().unwrap())
    );
    let home = get(port(&running), "/files/").await;
    assert_eq!((home.status().as_u16(), home.body().as_str()), (200, "<h1>home</h1>"));
    assert_eq!(home.headers()["content-type"], "text/html; charset=utf-8");
    assert!(home.headers().contains_key("ratelimit"), "the limiter is in front");
    let large = get(port(&running), "/files/sub/a%20b.txt").await;
    assert_eq!(large.body().len(), 200_000);
    let with = |name: &'static str, value: String| {
        let request = Request::get("/files/sub/a%20b.txt").header("host", "a").header(name, value);
        ask(port(&running), request.body(Full::default()).unwrap())
    };
    let part = with("range", "bytes=199995-".into()).await;
    assert_eq!((part.status().as_u16(), part.body().as_str()), (206, "56789"));
    assert_eq!(part.headers()["content-range"], "bytes 199995-199999/200000");
    assert_eq!(with("range", "bytes=200000-".into()).await.status(), 416);
    let head =
        Request::head("/files/sub/a%20b.txt").header("host", "a").header("range", "bytes=0-1");
    let head = ask(port(&running), head.body(Full::default()).unwrap()).await;
    assert_eq!((head.status().as_u16(), head.body().as_str()), (200, ""), "ranges are for GET");
    assert_eq!(head.headers()["content-length"], "200000");
    assert_eq!(with("if-match", "\"old\"".into()).await.status(), 412);
    for name in ["etag", "last-modified"] {
        let asked = if name == "etag" { "if-none-match" } else { "if-modified-since" };
        let value = large.headers()[name].to_str().unwrap().to_owned();
        let known = with(asked, value).await;
        assert_eq!((known.status().as_u16(), known.body().as_str()), (304, ""), "{name}");
    }
    until_idle(&running).await;
}

#[tokio::test]
async fn a_file_is_no_folder() {
    let folder = with_files("slash");
    let running = serving(&folder).await;
    for (path, status) in [
        ("/files/index.html", 200),
        ("/files/index.html/", 404),
        ("/files/sub/a%20b.txt/", 404),
        ("/files/", 200),
    ] {
        assert_eq!(get(port(&running), path).await.status(), status, "{path}");
    }
}

#[tokio::test]
async fn nothing_outside_of_the_folder_is_served() {
    let folder = with_files("outside");
    std::os::unix::fs::symlink(folder.0.join("secret.txt"), folder.0.join("public/link")).unwrap();
    folder.write("public/.hidden", "hidden");
    std::os::unix::fs::symlink(&folder.0, folder.0.join("public/up")).unwrap();
    // Whoever opens a pipe waits for somebody to write to it.
    let pipe = std::process::Command::new("mkfifo").arg(folder.0.join("public/pipe")).status();
    assert!(pipe.unwrap().success());
    let running = serving(&folder).await;
    for path in [
        "/files/../secret.txt",
        "/files/%2e%2e/secret.txt",
        "/files/..%2fsecret.txt",
        "/files/sub/../../secret.txt",
        "/files/..\\secret.txt",
        "/files/link",
        "/files/up/secret.txt",
        "/files/up/",
        "/files/pipe",
        "/files/.hidden",
        "/files/nothing",
        "/files/sub",
        "/files//etc/passwd",
    ] {
        let answer = get(port(&running), path).await;
        assert_eq!(answer.status(), 404, "{path}");
        assert!(!answer.body().contains("secret"), "{path}");
    }
    let request = Request::post("/files/index.html").header("host", "a");
    let refused = ask(port(&running), request.body(Full::default()).unwrap()).await;
    assert_eq!(refused.status(), 405);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}
