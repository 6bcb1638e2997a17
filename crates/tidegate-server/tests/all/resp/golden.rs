//! Every other command, byte for byte, in both versions of the protocol.

use std::time::Duration;

use tidegate_server::resp::RespSettings;
use tidegate_server::resp::conversation::Next;

use crate::resp::talk::{Talk, replies};

/// The same reply in version 2 and in version 3.
fn both(words: &str, two: &str, three: &str) {
    assert_eq!(Talk::new().asks(words), two, "{words} in version 2");
    assert_eq!(Talk::three().asks(words), three, "{words} in version 3");
}

#[test]
fn small_commands_are_answered_as_redis_does() {
    for (words, reply) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
        ("ECHO hello", "$5\r\nhello\r\n"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("QUIT", "+OK\r\n"),
        ("RESET", "+RESET\r\n"),
        ("COMMAND COUNT", ":19\r\n"),
        ("COMMAND FOO", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.\r\n"),
        ("CONFIG", "-ERR wrong number of arguments for 'config' command\r\n"),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"),
        ("CONFIG SET a b", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
        ("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"),
        (
            "GET key value",
            "-ERR unknown command 'GET', with args beginning with: 'key' 'value' \r\n",
        ),
    ] {
        both(words, reply, reply);
    }
    both("CONFIG GET maxmemory", "*0\r\n", "%0\r\n");
}

#[test]
fn what_would_change_the_meaning_of_later_commands_is_refused_with_a_reason() {
    for (words, lacks) in [
        ("MULTI", "transactions are not supported"),
        ("subscribe news", "channels are not supported"),
        ("MONITOR", "watching other clients is not supported"),
        ("REPLICAOF no one", "replication is not supported"),
    ] {
        let name = words.split(' ').next().expect("a name").to_ascii_uppercase();
        let expected = format!("-ERR {name} is refused: {lacks}\r\n");
        both(words, &expected, &expected);
    }
}

#[test]
fn clients_name_their_connections() {
    for (words, reply) in [
        ("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n"),
        ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT SETINFO LIB-VER 8.1.0", "+OK\r\n"),
        ("CLIENT SETINFO FOO 1", "-ERR Unrecognized option 'FOO'\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        ("CLIENT NO-TOUCH on", "+OK\r\n"),
        ("CLIENT TRACKING off", "+OK\r\n"),
        ("CLIENT TRACKING on", "-ERR CLIENT TRACKING ON is not supported\r\n"),
        ("CLIENT REPLY on", "+OK\r\n"),
        ("CLIENT REPLY off", "-ERR CLIENT REPLY OFF is not supported\r\n"),
    ] {
        both(words, reply, reply);
    }
    both("CLIENT GETNAME", "$-1\r\n", "_\r\n");
    both(
        "CLIENT TRACKINGINFO",
        "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
        "%3\r\n$5\r\nflags\r\n~1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
    );
    let mut talk = Talk::new();
    assert_eq!(talk.asks("CLIENT SETNAME worker-1"), "+OK\r\n");
    assert_eq!(talk.asks("CLIENT GETNAME"), "$8\r\nworker-1\r\n");
    let info = talk.asks("CLIENT INFO");
    assert!(info.contains(" name=worker-1 db=0 user=default resp=2 "), "{info}");
    let refused = "-ERR Client names cannot contain spaces, newlines or special characters.\r\n";
    assert_eq!(talk.says(b"CLIENT SETNAME 'a b'\r\n"), refused);
    let long = talk.asks(&format!("CLIENT SETNAME {}", "x".repeat(129)));
    assert_eq!(long, "-ERR Client names cannot be longer than 128 bytes.\r\n");
    let ids = [Talk::new().asks("CLIENT ID"), Talk::new().asks("CLIENT ID")];
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn hello_chooses_the_version_and_introduces_the_server() {
    let mut talk = Talk::new();
    let id = talk.asks("CLIENT ID");
    let introduction = |head: &str, proto: u8| {
        format!(
            "{head}\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n\
             $5\r\nproto\r\n:{proto}\r\n$2\r\nid\r\n{id}$4\r\nmode\r\n$10\r\nstandalone\r\n\
             $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
        )
    };
    assert_eq!(talk.asks("HELLO"), introduction("*14", 2));
    assert_eq!(talk.asks("HELLO 3 SETNAME me"), introduction("%7", 3));
    assert_eq!(talk.asks("CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(talk.asks("HELLO"), introduction("%7", 3));
    assert_eq!(talk.asks("HELLO 2 AUTH default any"), introduction("*14", 2));
    for (words, error) in [
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 FOO", "ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 3 AUTH a", "ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 3 AUTH bob x", "WRONGPASS invalid username-password pair or user is disabled."),
    ] {
        assert_eq!(talk.asks(words), format!("-{error}\r\n"), "{words}");
    }
    assert_eq!(talk.asks("HELLO"), introduction("*14", 2), "a mistake chooses nothing");
}

#[test]
fn a_password_is_asked_for_before_anything_else() {
    let talk = || Talk::with(RespSettings::new().with_password(b"open sesame"));
    let first = "-NOAUTH Authentication required.\r\n";
    for words in ["PING", "CL.THROTTLE k 1 1 1", "TG.CHECK api 1", "COMMAND", "CLIENT ID", "MULTI"]
    {
        assert_eq!(talk().asks(words), first, "{words}");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
                 the RESP protocol version at the same time\r\n";
    let mut talk = talk();
    assert_eq!(talk.asks("HELLO 3"), hello);
    assert_eq!(talk.asks("AUTH open"), wrong);
    assert_eq!(talk.says(b"AUTH bob 'open sesame'\r\n"), wrong);
    assert_eq!(talk.asks("HELLO 3 AUTH default open"), wrong);
    assert_eq!(talk.asks("PING"), first);
    assert_eq!(talk.says(b"AUTH 'open sesame'\r\n"), "+OK\r\n");
    assert_eq!(talk.asks("PING"), "+PONG\r\n");
    assert_eq!(talk.asks("RESET"), "+RESET\r\n");
    assert_eq!(talk.asks("PING"), first);
    assert!(talk.says(b"HELLO 3 AUTH default 'open sesame'\r\n").starts_with("%7\r\n"));
    assert_eq!(talk.asks("CL.THROTTLE k 0 1 1"), "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:1\r\n");
    let debug = format!("{:?}", RespSettings::new().with_password(b"open sesame"));
    assert!(debug.contains("has_password: true") && !debug.contains("sesame"), "{debug}");
}

#[test]
fn somebody_who_has_not_said_the_password_may_not_send_much() {
    let talk = || Talk::with(RespSettings::new().with_password(b"secret"));
    for (said, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*1\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut talk = talk();
        assert_eq!(talk.says(said.as_bytes()), format!("-ERR Protocol error: {error}\r\n"));
        assert_eq!(talk.next, Next::Close);
    }
}

#[test]
fn without_a_password_auth_says_that_there_is_none() {
    let mut talk = Talk::new();
    let error = "-ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?\r\n";
    assert_eq!(talk.asks("AUTH x"), error);
    assert_eq!(talk.asks("AUTH default x"), "+OK\r\n");
    assert_eq!(talk.asks("AUTH a b c"), "-ERR syntax error\r\n");
    assert_eq!(talk.asks("AUTH"), "-ERR wrong number of arguments for 'auth' command\r\n");
}

#[test]
fn the_table_of_commands_says_where_the_key_is() {
    both(
        "COMMAND INFO cl.throttle nothing",
        "*2\r\n*10\r\n$11\r\ncl.throttle\r\n:-1\r\n*2\r\n+write\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
         *0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        "*2\r\n*10\r\n$11\r\ncl.throttle\r\n:-1\r\n~2\r\n+write\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
         ~0\r\n~0\r\n~0\r\n~0\r\n_\r\n",
    );
    let summary = "$7\r\nsummary\r\n$33\r\nAnswers PONG, or what it is given\r\n";
    let docs = Talk::three().asks("COMMAND DOCS ping nothing");
    assert!(docs.starts_with("%1\r\n$4\r\nping\r\n%3\r\n"), "{docs}");
    assert!(docs.contains(summary), "{docs}");
    for words in ["COMMAND", "COMMAND DOCS", "COMMAND INFO", "COMMAND LIST", "COMMAND HELP", "INFO"]
    {
        assert_eq!(replies(Talk::new().asks(words).as_bytes(), 2), 1, "{words}");
        assert_eq!(replies(Talk::three().asks(words).as_bytes(), 3), 1, "{words}");
    }
}

#[test]
fn info_has_a_section_about_the_server() {
    let info = Talk::new().asks("INFO server");
    assert!(info.contains("# Server\r\nredis_version:7.2.4\r\nserver_name:tidegate\r\n"), "{info}");
    assert!(info.contains(&format!("tidegate_version:{}\r\n", env!("CARGO_PKG_VERSION"))));
    assert_eq!(Talk::new().asks("INFO keyspace"), "$0\r\n\r\n");
    assert!(Talk::three().asks("INFO").contains("\r\ntxt:# Server\r\n"));
}

#[test]
fn an_http_request_that_a_browser_was_made_to_send_is_not_obeyed() {
    let mut talk = Talk::new();
    assert_eq!(talk.says(b"POST / HTTP/1.1\r\nCL.THROTTLE k 1 1 1\r\n"), "");
    assert_eq!(talk.next, Next::Close);
}

#[test]
fn checks_are_answered_in_the_fixed_order_of_version_2() {
    let mut talk = Talk::new();
    let at = talk.daemon.engine.limiter().now().as_micros();
    assert_eq!(
        talk.asks("TG.CHECK api 2 path /login ip 192.0.2.7"),
        format!(
            "*16\r\n:1\r\n$5\r\nlogin\r\n:2\r\n:0\r\n:60000\r\n$-1\r\n:0\r\n$-1\r\n:0\r\n:0\r\n\
             $6\r\nmemory\r\n:0\r\n$-1\r\n:{at}\r\n*1\r\n\
             *11\r\n$5\r\nlogin\r\n$5\r\nlogin\r\n$8\r\n2/minute\r\n:1\r\n:0\r\n:1\r\n:2\r\n:2\r\n:0\r\n\
             :60000\r\n$-1\r\n$-1\r\n"
        )
    );
    assert_eq!(
        talk.asks("TG.CHECK api 1 path /login ip 192.0.2.7"),
        "*16\r\n:0\r\n$5\r\nlogin\r\n:2\r\n:0\r\n:60000\r\n:30000\r\n:0\r\n$10\r\nover-limit\r\n\
         :0\r\n:0\r\n$6\r\nmemory\r\n:0\r\n$-1\r\n$-1\r\n*1\r\n\
         *11\r\n$5\r\nlogin\r\n$5\r\nlogin\r\n$8\r\n2/minute\r\n:1\r\n:0\r\n:0\r\n:1\r\n:2\r\n:0\r\n\
         :60000\r\n:30000\r\n$-1\r\n"
    );
}

#[test]
fn checks_are_answered_with_the_names_of_json_in_version_3() {
    let mut talk = Talk::three();
    talk.asks("TG.DEBIT api 2 path /login ip 192.0.2.7");
    assert_eq!(
        talk.asks("TG.CHECK api 1 path /login ip 192.0.2.7"),
        "%16\r\n$7\r\nallowed\r\n#f\r\n$4\r\nrule\r\n$5\r\nlogin\r\n$5\r\nlimit\r\n:2\r\n\
         $9\r\nremaining\r\n:0\r\n$14\r\nreset_after_ms\r\n:60000\r\n\
         $14\r\nretry_after_ms\r\n:30000\r\n$8\r\ndelay_ms\r\n:0\r\n\
         $6\r\nreason\r\n$10\r\nover-limit\r\n$4\r\nsoft\r\n#f\r\n$13\r\nshadow_denied\r\n#f\r\n\
         $6\r\nsource\r\n$6\r\nmemory\r\n$8\r\ndegraded\r\n#f\r\n$8\r\nlease_id\r\n_\r\n\
         $11\r\ntaken_at_us\r\n_\r\n$6\r\nlimits\r\n*1\r\n\
         %11\r\n$4\r\nrule\r\n$5\r\nlogin\r\n$4\r\nname\r\n$5\r\nlogin\r\n\
         $4\r\ntext\r\n$8\r\n2/minute\r\n$8\r\nenforced\r\n#t\r\n$7\r\nreserve\r\n#f\r\n\
         $7\r\nallowed\r\n#f\r\n$4\r\ncost\r\n:1\r\n$5\r\nlimit\r\n:2\r\n$9\r\nremaining\r\n:0\r\n\
         $14\r\nreset_after_ms\r\n:60000\r\n$14\r\nretry_after_ms\r\n:30000\r\n\
         $22\r\nlease_expires_after_ms\r\n_\r\n"
    );
}

/// The value of a field in an answer of version 3, up to the end of its line.
fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let named = format!("${}\r\n{name}\r\n", name.len());
    let value = answer.split_once(&named).unwrap_or_else(|| panic!("no {name} in {answer}")).1;
    let (first, rest) = value.split_once("\r\n").expect("a line");
    if first.starts_with('$') { rest.split_once("\r\n").expect("a text").0 } else { first }
}

#[test]
fn a_peek_takes_nothing_a_debit_takes_all_and_a_refund_gives_back() {
    let mut talk = Talk::three();
    let who = "path /login ip 192.0.2.7";
    let peek = talk.asks(&format!("TG.PEEK api 1 {who}"));
    assert_eq!((field(&peek, "remaining"), field(&peek, "taken_at_us")), (":2", "_"));
    let debit = talk.asks(&format!("TG.DEBIT api 3 {who}"));
    assert_eq!((field(&debit, "allowed"), field(&debit, "remaining")), ("#t", ":0"));
    let taken_at = field(&debit, "taken_at_us").trim_start_matches(':').to_owned();
    let denied = talk.asks(&format!("TG.CHECK api 1 {who}"));
    assert_eq!((field(&denied, "allowed"), field(&denied, "retry_after_ms")), ("#f", ":60000"));
    talk.daemon.clock.advance(Duration::from_secs(15));
    let refund = talk.asks(&format!("TG.REFUND api 3 {taken_at} {who}"));
    assert_eq!((field(&refund, "remaining"), field(&refund, "reset_after_ms")), (":2", ":0"));
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 2 {who}")), "allowed"), "#t");
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 2 {who}")), "allowed"), "#f");
    assert_eq!(talk.asks(&format!("TG.RESET api {who}")), "+OK\r\n");
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 2 {who}")), "allowed"), "#t");
}

#[test]
fn leases_are_given_and_given_back() {
    let mut talk = Talk::three();
    let who = "path /jobs user ann";
    let lease = field(&talk.asks(&format!("TG.CHECK api 1 {who}")), "lease_id").to_owned();
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 1 {who}")), "remaining"), ":0");
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 1 {who}")), "allowed"), "#f");
    let released = talk.asks(&format!("TG.RELEASE api {lease} {who}"));
    assert_eq!(field(&released, "remaining"), ":1");
    assert_eq!(field(&talk.asks(&format!("TG.CHECK api 1 {who}")), "allowed"), "#t");
}

#[test]
fn leases_are_renewed() {
    let mut talk = Talk::three();
    let who = "path /jobs user ann";
    let taken = talk.asks(&format!("TG.CHECK api 1 {who}"));
    let lease = field(&taken, "lease_id").to_owned();
    assert_eq!(field(&taken, "lease_expires_after_ms"), ":30000");
    talk.daemon.clock.advance(Duration::from_secs(25));
    let renew = format!("TG.RENEW api {lease} {who}");
    let renewed = talk.asks(&renew);
    assert_eq!(field(&renewed, "lease_id"), lease);
    assert_eq!(field(&renewed, "lease_expires_after_ms"), ":30000");
    talk.daemon.clock.advance(Duration::from_secs(29));
    assert_eq!(field(&talk.asks(&format!("TG.PEEK api 1 {who}")), "remaining"), ":1");
    talk.daemon.clock.advance(Duration::from_secs(1));
    let late = talk.asks(&renew);
    assert_eq!((field(&late, "lease_id"), field(&late, "remaining")), ("_", ":2"));
    assert_eq!(field(&late, "lease_expires_after_ms"), "_");
}

#[test]
fn shadows_delays_and_domains_without_rules_are_told_apart() {
    let mut talk = Talk::three();
    talk.asks("TG.CHECK api 1 path /trial");
    let trial = talk.asks("TG.CHECK api 1 path /trial");
    assert_eq!((field(&trial, "allowed"), field(&trial, "shadow_denied")), ("#t", "#t"));
    talk.asks("TG.CHECK api 1 path /queue");
    assert_eq!(field(&talk.asks("TG.CHECK api 1 path /queue"), "delay_ms"), ":1000");
    let nowhere = talk.asks("TG.CHECK nowhere 1 user 42");
    assert_eq!((field(&nowhere, "allowed"), field(&nowhere, "rule")), ("#t", "_"));
    assert_eq!(field(&nowhere, "limits"), "*0");
}

#[test]
fn what_cannot_be_decided_is_an_error_and_never_a_denial() {
    let mut talk = Talk::new();
    let many = " name value".repeat(33);
    assert_eq!(
        talk.asks(&format!("TG.CHECK api 1{many}")),
        "-TGERR could not decide: the request has more than 32 attributes; send those that rules \
         name\r\n"
    );
    for (words, error) in [
        ("TG.CHECK", "wrong number of arguments for 'tg.check' command"),
        ("TG.CHECK api", "wrong number of arguments for 'tg.check' command"),
        ("TG.CHECK api 1 user", "wrong number of arguments for 'tg.check' command"),
        ("TG.REFUND api 1", "wrong number of arguments for 'tg.refund' command"),
        ("TG.RESET", "wrong number of arguments for 'tg.reset' command"),
        ("TG.RESET api user", "wrong number of arguments for 'tg.reset' command"),
        ("TG.CHECK api x user 1", "cost is not an integer or out of range"),
        ("TG.PEEK api -1 user 1", "cost is not an integer or out of range"),
        ("TG.DEBIT api 1.5", "cost is not an integer or out of range"),
        ("TG.REFUND api 1 now user 1", "taken_at_us is not an integer or out of range"),
        ("TG.RELEASE api 0 user 1", "lease_id is not one that a check gave"),
        ("TG.RENEW api 0 user 1", "lease_id is not one that a check gave"),
        ("TG.RENEW api", "wrong number of arguments for 'tg.renew' command"),
    ] {
        assert_eq!(talk.asks(words), format!("-ERR {error}\r\n"), "{words}");
    }
    let reply = talk.bytes(b"TG.CHECK \"\\xff\" 1\r\n");
    assert_eq!(reply, b"-ERR domain is not valid UTF-8\r\n");
    let reply = talk.bytes(b"TG.CHECK api 1 \"\\xff\" x\r\n");
    assert_eq!(reply, b"-ERR attribute name is not valid UTF-8\r\n");
}
