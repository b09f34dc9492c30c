//! A proxy between a server and its database that fails when it is told to.
//!
//! It picks its moment by what the messages are for, and never by how a statement is spelled beyond the
//! name of its table, so that it holds for any way in which frames are written.

use crate::wire::{Command, Message, Session};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// When something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A new connection.
    Connect,
    /// A command, whatever it is, after so many others.
    Command(usize),
    /// A transaction begins.
    Begin,
    /// A run's row is read.
    Head,
    /// The statement that writes frames.
    Write,
    /// The statement that moves a run's head.
    MoveHead,
    /// Whatever makes written frames durable: a COMMIT, or the statement itself outside a transaction.
    Commit,
}

/// What goes wrong then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Failed: the connection breaks, and the database never heard of it.
    Cut,
    /// Failed but persisted: the connection breaks after the database has done it and before it could say so.
    CutAfter,
    /// The database answers an error of this code instead.
    Answer(&'static str),
    /// Everything stands still, on all connections, until [`Proxy::thaw`].
    Freeze,
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    /// The database's socket.
    socket: String,
    armed: Mutex<Armed>,
    fired: watch::Sender<usize>,
    frozen: watch::Sender<bool>,
    delay: Mutex<Duration>,
    passed: Mutex<Passed>,
    /// Ends all connections that there are.
    links: Mutex<CancellationToken>,
}

#[derive(Default)]
struct Armed {
    rule: Option<(Moment, Fault)>,
    /// How often it is still to happen.
    times: usize,
    commands: usize,
}

/// What the proxy saw pass.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Statements that write frames.
    pub writes: usize,
    /// Codes of the database's errors and notices, and how many of each there were.
    pub codes: BTreeMap<String, usize>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.sever();
    }
}

impl Proxy {
    /// A proxy before a database of a cluster of ours, whose address names its socket's folder.
    pub async fn before(url: &str) -> Self {
        let (name, query) = url
            .strip_prefix("postgres:///")
            .and_then(|rest| rest.split_once('?'))
            .expect("an address of a cluster");
        let folder = query.split('&').find_map(|part| part.strip_prefix("host="));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            socket: format!("{}/.s.PGSQL.5432", folder.expect("a folder")),
            armed: Mutex::default(),
            fired: watch::Sender::new(0),
            frozen: watch::Sender::new(false),
            delay: Mutex::default(),
            passed: Mutex::default(),
            links: Mutex::default(),
        });
        Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/{name}"),
            task: tokio::spawn(accept(listener, shared.clone())),
            shared,
        }
    }

    /// The address for `--database-url`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Has a fault happen so many times.
    pub fn arm(&self, moment: Moment, fault: Fault, times: usize) {
        self.shared.fired.send_replace(0);
        *self.shared.armed.lock().expect("no panic") = Armed {
            rule: Some((moment, fault)),
            times,
            commands: 0,
        };
    }

    /// Lets everything pass again; returns how often the fault happened.
    pub fn disarm(&self) -> usize {
        *self.shared.armed.lock().expect("no panic") = Armed::default();
        *self.shared.fired.borrow()
    }

    /// Waits until the fault has happened.
    pub async fn fired(&self) {
        let mut fired = self.shared.fired.subscribe();
        fired.wait_for(|times| *times > 0).await.expect("it runs");
    }

    /// Holds all bytes, in both directions.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Lets go of what is held.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Whatever comes from a server waits so long.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay.lock().expect("no panic") = delay;
    }

    /// Breaks all connections.
    pub fn sever(&self) {
        let mut links = self.shared.links.lock().expect("no panic");
        links.cancel();
        *links = CancellationToken::new();
    }

    pub fn passed(&self) -> Passed {
        self.shared.passed.lock().expect("no panic").clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        let end = shared.links.lock().expect("no panic").child_token();
        let shared = shared.clone();
        tokio::spawn(async move {
            let link = Link {
                shared,
                session: Mutex::new(Session::new()),
                turn: Mutex::default(),
            };
            // A side that breaks off ends the other one.
            let _ = end.run_until_cancelled(link.carry(client)).await;
        });
    }
}

/// One connection.
struct Link {
    shared: Arc<Shared>,
    session: Mutex<Session>,
    turn: Mutex<Turn>,
}

/// What the answers of the database become.
#[derive(Clone, Copy, Default)]
enum Turn {
    #[default]
    Pass,
    /// The end of the connection, at the `ReadyForQuery` of this number.
    Cut(usize),
    /// An error of this code, until the next `ReadyForQuery`.
    Error(&'static str),
}

fn cut() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Link {
    async fn carry(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let start = read_start(&mut client).await?;
        match self.shared.fire(Moment::Connect, None) {
            Some(Fault::Cut) => return Err(cut()),
            Some(Fault::CutAfter) => *self.turn.lock().expect("no panic") = Turn::Cut(1),
            Some(Fault::Answer(code)) => {
                let error = Message::error("FATAL", code);
                return client.write_all(error.bytes()).await;
            }
            Some(Fault::Freeze) | None => {}
        }
        self.shared.thawed().await;
        let mut database = UnixStream::connect(&self.shared.socket).await?;
        database.write_all(&start).await?;
        let (mut from_client, mut to_client) = client.split();
        let (mut from_database, mut to_database) = database.split();
        tokio::select! {
            ended = self.up(&mut from_client, &mut to_database) => ended,
            ended = self.down(&mut from_database, &mut to_client) => ended,
        }
    }

    /// From the server to the database.
    async fn up(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        while from.read_buf(&mut buffer).await? > 0 {
            let delay = *self.shared.delay.lock().expect("no panic");
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let mut passing = Vec::new();
            while let Some(message) = Message::take(&mut buffer) {
                let message = self.of_client(message)?;
                self.shared.thawed().await;
                passing.extend_from_slice(message.bytes());
            }
            to.write_all(&passing).await?;
        }
        Ok(())
    }

    /// From the database to the server.
    async fn down(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        while from.read_buf(&mut buffer).await? > 0 {
            let mut passing = Vec::new();
            while let Some(message) = Message::take(&mut buffer) {
                if let Some(message) = self.of_database(message)? {
                    passing.extend_from_slice(message.bytes());
                }
            }
            self.shared.thawed().await;
            to.write_all(&passing).await?;
        }
        Ok(())
    }

    fn of_client(&self, message: Message) -> io::Result<Message> {
        let mut session = self.session.lock().expect("no panic");
        let Some(command) = session.hear_client(&message) else {
            return Ok(message);
        };
        let simple = message.tag() == b'Q';
        let mut turn = self.turn.lock().expect("no panic");
        match self.shared.fire_at(&command) {
            Some(Fault::Cut) => return Err(cut()),
            // A simple query asks for its end itself, others by the `Sync` that follows.
            Some(Fault::CutAfter) => *turn = Turn::Cut(session.asked + usize::from(!simple)),
            Some(Fault::Answer(code)) => {
                // A real failure, of which the database makes what it makes of each, under another name.
                *turn = Turn::Error(code);
                return Ok(match (simple, command.commits_frames) {
                    (true, true) => Message::new(b'Q', b"rollback; select a_fault\0"),
                    (true, false) => Message::new(b'Q', b"select a_fault\0"),
                    (false, _) => Message::new(b'E', b"no such portal\0\0\0\0\0"),
                });
            }
            Some(Fault::Freeze) | None => {}
        }
        if command.writes_frames() {
            self.shared.passed.lock().expect("no panic").writes += 1;
        }
        Ok(message)
    }

    fn of_database(&self, message: Message) -> io::Result<Option<Message>> {
        let mut session = self.session.lock().expect("no panic");
        session.hear_database(&message);
        let mut turn = self.turn.lock().expect("no panic");
        match *turn {
            Turn::Cut(ready) if session.ready >= ready => Err(cut()),
            Turn::Cut(ready) if session.ready + 1 == ready => Ok(None),
            Turn::Error(code) => match message.tag() {
                b'E' => Ok(Some(Message::error("ERROR", code))),
                b'C' => Ok(None),
                b'Z' => {
                    *turn = Turn::Pass;
                    Ok(Some(message))
                }
                _ => Ok(Some(message)),
            },
            Turn::Pass | Turn::Cut(_) => {
                if let Some(code) = message.code() {
                    let mut passed = self.shared.passed.lock().expect("no panic");
                    *passed.codes.entry(code).or_default() += 1;
                }
                Ok(Some(message))
            }
        }
    }
}

impl Shared {
    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        let _ = frozen.wait_for(|frozen| !frozen).await;
    }

    fn fire_at(&self, command: &Command) -> Option<Fault> {
        let begins = |word: &str| command.text.trim_start().starts_with(word);
        let moments = [
            (true, Moment::Command(0)),
            (begins("begin") || begins("start tr"), Moment::Begin),
            (command.text.contains("from runs"), Moment::Head),
            (command.writes_frames(), Moment::Write),
            (command.text.contains("update runs"), Moment::MoveHead),
            (command.commits_frames, Moment::Commit),
        ];
        let found = moments.into_iter().filter(|(is, _)| *is);
        found
            .filter_map(|(_, moment)| self.fire(moment, Some(command)))
            .next()
    }

    /// The fault, where this is its moment.
    fn fire(&self, now: Moment, command: Option<&Command>) -> Option<Fault> {
        let mut armed = self.armed.lock().expect("no panic");
        let (moment, fault) = armed.rule.filter(|_| armed.times > 0)?;
        let is_now = match moment {
            Moment::Command(after) if now == Moment::Command(0) && command.is_some() => {
                armed.commands += 1;
                armed.commands > after
            }
            other => other == now && !matches!(other, Moment::Command(_)),
        };
        if !is_now {
            return None;
        }
        armed.times -= 1;
        if fault == Fault::Freeze {
            self.freeze();
        }
        self.fired.send_modify(|times| *times += 1);
        Some(fault)
    }

    fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}

/// The first message of a connection, which alone has no tag. Encryption is not offered.
async fn read_start(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    /// `SSLRequest` and `GSSENCRequest`.
    const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];
    loop {
        let length = client.read_u32().await?;
        let code = client.read_u32().await?;
        if ENCRYPTION.contains(&code) {
            client.write_all(b"N").await?;
            continue;
        }
        let mut start = [length.to_be_bytes(), code.to_be_bytes()].concat();
        start.resize(usize::try_from(length).expect("a length"), 0);
        client.read_exact(&mut start[8..]).await?;
        return Ok(start);
    }
}
