//! One connection without its socket: bytes that were read go in, bytes to write come out.
//!
//! Everything that one read brings is answered in one go, at one instant: the clock is read once, and
//! what comes out is written at once. Where a store decides, it is asked about all of it together, and
//! the answers follow in order.

use std::sync::Arc;

use tidegate_rules::identity::Salt;

use super::commands::{self, Verb, is};
use super::gate;
use super::parse::{Bounds, Command, Parser};
use super::reply::Reply;
use super::session::{self, Session};
use super::throttle::{self, Asked, Run};
pub use super::waiting::Asking;
use super::waiting::{Order, Waiting};
use super::{OUTPUT_BYTES_MAX, RespSettings};
use crate::engine::{Engine, Protocol, at_once};
use crate::listen::Peer;
use crate::metrics::Entrance;

/// What one side has said so far, and who it is.
#[derive(Debug)]
pub struct Conversation {
    engine: Arc<Engine>,
    settings: Arc<RespSettings>,
    salt: Salt,
    session: Session,
    parser: Parser,
    /// What was heard and not yet answered: half a command, or what there was no room to answer. It is
    /// empty most of the time, and takes no memory then.
    kept: Vec<u8>,
    /// What a store is to be asked. Empty where memory decides.
    waiting: Waiting,
    answered: u64,
}

/// Room to answer in, which belongs to a thread. Connections have none of their own.
#[derive(Debug, Default)]
pub struct Desk {
    /// What is to be written.
    pub output: Vec<u8>,
    run: Run,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Writing the output, and reading more.
    Listen,
    /// Writing the output, and hearing nothing new: more can be answered already.
    Resume,
    /// Writing the output, and closing: what was read made no sense, or it was the last.
    Close,
}

impl Conversation {
    /// A conversation in which nothing has been said.
    pub fn new(engine: Arc<Engine>, settings: Arc<RespSettings>, peer: Peer) -> Self {
        let salt = engine.limiter().given_salt(throttle::KIND);
        let session = Session::new(peer, &settings);
        let (parser, kept, waiting) = (Parser::new(), Vec::new(), Waiting::default());
        Self { engine, settings, salt, session, parser, kept, waiting, answered: 0 }
    }

    /// Answers all commands that `fresh` ends or holds, as far as there is room for the answers.
    ///
    /// It may write over `fresh`, which is of no use afterwards.
    pub fn hear(&mut self, fresh: &mut [u8], desk: &mut Desk) -> Next {
        if self.kept.is_empty() {
            let (used, next) = self.answer(fresh, desk);
            self.kept.extend_from_slice(&fresh[used..]);
            return next;
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(fresh);
        let (used, next) = self.answer(&mut kept, desk);
        if used < kept.len() {
            kept.drain(..used);
            self.kept = kept;
        }
        next
    }

    /// What is to be waited for before anything else is heard: the answers of a store, and between them
    /// what `output` holds, which is taken. `None` where the output is all there is.
    pub fn asking(&mut self, output: &mut Vec<u8>) -> Option<Asking> {
        if self.waiting.is_empty() {
            return None;
        }
        let (waiting, said) = (std::mem::take(&mut self.waiting), std::mem::take(output));
        let engine = Arc::clone(&self.engine);
        Some(Box::pin(async move {
            let began = engine.limiter().now();
            let answers = waiting.answers(said).await;
            let took = engine.limiter().now().since(began);
            engine.metrics().took(Protocol::Resp, took.into());
            answers
        }))
    }

    /// How many commands have been answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether the other side has begun something and not ended it.
    pub fn is_amid(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Answers what stands in `bytes`, and says how many of them that was.
    fn answer(&mut self, bytes: &mut [u8], desk: &mut Desk) -> (usize, Next) {
        let Self { engine, settings, session, parser, waiting, .. } = self;
        let Desk { output, run } = desk;
        let asked = Asked { engine, salt: self.salt, now: engine.limiter().now() };
        let mut used = 0;
        let before = self.answered;
        let next = loop {
            let bounds = if session.is_known { &settings.bounds } else { &Bounds::STRANGER };
            match parser.next(&mut bytes[used..], bounds) {
                Ok(None) => break Next::Listen,
                Ok(Some(command)) => {
                    used += command.bytes();
                    self.answered += 1;
                    let mut turn = Turn { session, settings, asked, run, waiting, output };
                    if turn.take(&command) == Next::Close {
                        break Next::Close;
                    }
                }
                Err(error) => {
                    let mut reply = Reply::new(output, session.version);
                    run.finish(asked, &mut reply);
                    reply.error(format_args!("ERR Protocol error: {error}"));
                    engine.metrics().protocol_error(Entrance::Resp);
                    tracing::debug!(%error, "a connection ends: it does not speak the protocol");
                    break Next::Close;
                }
            }
            if output.len() >= OUTPUT_BYTES_MAX || waiting.is_full() {
                break Next::Resume;
            }
        };
        run.finish(asked, &mut Reply::new(output, session.version));
        parser.shrink();
        if self.answered > before && waiting.is_empty() {
            let took = engine.limiter().now().since(asked.now);
            engine.metrics().took(Protocol::Resp, took.into());
        }
        (used, next)
    }
}

/// What one command is answered with.
struct Turn<'t> {
    session: &'t mut Session,
    settings: &'t RespSettings,
    asked: Asked<'t>,
    run: &'t mut Run,
    waiting: &'t mut Waiting,
    output: &'t mut Vec<u8>,
}

impl Turn<'_> {
    #[inline]
    fn take(&mut self, command: &Command<'_>) -> Next {
        let Some(name) = command.part(0) else { return Next::Listen };
        if self.session.is_known && is(name, commands::THROTTLE.name) {
            self.throttle(command);
            return Next::Listen;
        }
        self.take_other(name, command)
    }

    #[inline]
    fn throttle(&mut self, command: &Command<'_>) {
        let mut reply = Reply::new(self.output, self.session.version);
        let Asked { engine, salt, .. } = self.asked;
        if !engine.is_shared() {
            return self.run.push(command, self.asked, &mut reply);
        }
        let (engine, command, version) = (Arc::clone(engine), command.kept(), reply.version());
        self.waiting.push(self.output.len(), Order::Together, async move {
            let mut output = Vec::new();
            let asked = Asked { engine: &engine, salt, now: engine.limiter().now() };
            throttle::answer(&command.command(), asked, &mut Reply::new(&mut output, version))
                .await;
            output
        });
    }

    /// Answers a command about the rules, or leaves it to be answered when the store has.
    fn decide(&mut self, verb: Verb, command: &Command<'_>) {
        let engine = self.asked.engine;
        let mut reply = Reply::new(self.output, self.session.version);
        if !engine.is_shared() {
            // What memory decides is there at once.
            let _ = at_once(gate::answer(engine, verb, command, &mut reply));
            return;
        }
        let (engine, command, version) = (Arc::clone(engine), command.kept(), reply.version());
        // What gives back may take several steps, and what follows is to find it done.
        let order = match verb {
            Verb::Check | Verb::Peek | Verb::Debit => Order::Together,
            _ => Order::Alone,
        };
        self.waiting.push(self.output.len(), order, async move {
            let mut output = Vec::new();
            let reply = &mut Reply::new(&mut output, version);
            gate::answer(&engine, verb, &command.command(), reply).await;
            output
        });
    }

    fn take_other(&mut self, name: &[u8], command: &Command<'_>) -> Next {
        let mut reply = Reply::new(self.output, self.session.version);
        self.run.finish(self.asked, &mut reply);
        let Some(verb) = commands::verb(name) else {
            // The first words of an HTTP request: a page made somebody's browser send it, and what
            // follows is not to be obeyed.
            if is(name, "POST") || is(name, "HOST:") {
                return Next::Close;
            }
            commands::unknown(command, &mut reply);
            return Next::Listen;
        };
        if !self.session.is_known && !verb.is_for_all() {
            reply.error(format_args!("NOAUTH Authentication required."));
        } else if commands::has_its_parts(command, &mut reply) {
            self.obey(verb, command);
        }
        if verb == Verb::Quit { Next::Close } else { Next::Listen }
    }

    fn obey(&mut self, verb: Verb, command: &Command<'_>) {
        let Self { session, settings, output, .. } = self;
        if verb == Verb::Hello {
            return session.hello(command, settings, output);
        }
        let mut reply = Reply::new(output, session.version);
        let reply = &mut reply;
        match verb {
            // Taken and answered before it comes here.
            Verb::Throttle | Verb::Hello => {}
            Verb::Check
            | Verb::Peek
            | Verb::Debit
            | Verb::Refund
            | Verb::Release
            | Verb::Renew
            | Verb::Reset => {
                self.decide(verb, command);
            }
            Verb::Ping => session::ping(command, reply),
            Verb::Echo => reply.bulk(command.part(1).unwrap_or_default()),
            Verb::Auth => session.auth(command, settings, reply),
            Verb::Select => session::select(command, reply),
            Verb::Client => session.client(command, reply),
            Verb::CommandTable => commands::table(command, reply),
            Verb::Info => session::info(command, reply),
            Verb::Config => session::config(command, reply),
            Verb::Quit => reply.simple("OK"),
            Verb::ResetConnection => {
                session.reset(settings);
                reply.simple("RESET");
            }
            Verb::Refused { lacks } => {
                let name = command.part(0).unwrap_or_default().to_ascii_uppercase();
                let name = String::from_utf8_lossy(&name);
                reply.error(format_args!("ERR {name} is refused: {lacks} not supported"));
            }
        }
    }
}
