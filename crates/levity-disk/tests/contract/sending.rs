//! Sending the bytes that an engine hands over.

use crate::harness::for_every_engine;

for_every_engine![
    every_form_reaches_the_socket,
    a_full_socket_takes_part,
    bytes_being_sent_are_not_overwritten,
];

mod cases {
    use std::io::{self, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    use levity_disk::{Class, Disk, OpenFile, Ready, transmit};

    use crate::harness::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    /// Sends the bytes after the first `sent`.
    fn send(fd: BorrowedFd<'_>, ready: &Ready, sent: usize) -> io::Result<usize> {
        let left = ready.len() - sent;
        match ready {
            Ready::Bytes(buffer) => match buffer.memory_file() {
                Some((memory, offset)) => {
                    transmit::send_shared(fd, memory, offset + sent as u64, left)
                }
                None => Ok(rustix::io::write(fd, &buffer[sent..])?),
            },
            Ready::PageCache { file, offset, .. } => {
                transmit::sendfile(fd, file, offset + sent as u64, left)
            }
            Ready::Piped(_) => unreachable!("no job here takes pipes"),
        }
    }

    fn send_all(fd: BorrowedFd<'_>, ready: &Ready) {
        let mut sent = 0;
        while sent < ready.len() {
            match send(fd, ready, sent) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn every_form_reaches_the_socket(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 1 << 20);
        let file = open(&disk, &rig.root(), "file");
        for round in 0..6 {
            let (ours, mut theirs) = pair();
            let offset = 1000 * round;
            let (ready, _) = ask(&disk, read_op(&file, offset, 600_000)).unwrap();
            let receiver = std::thread::spawn(move || {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).map(|_| all)
            });
            send_all(ours.as_fd(), &ready);
            drop(ours);
            let received = receiver.join().unwrap().unwrap();
            assert!(received.len() == 600_000 && is_pattern(&received, offset));
        }
    }

    pub fn a_full_socket_takes_part(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 4 << 20);
        let file = open(&disk, &rig.root(), "file");
        let (ours, theirs) = pair();
        let (ready, _) = ask(&disk, read_op(&file, 0, 4 << 20)).unwrap();
        let mut sent = 0;
        let full = loop {
            match send(ours.as_fd(), &ready, sent) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0 && sent < 4 << 20);
        drop(theirs);
    }
    const CHUNK: usize = 60_000;

    fn chunk(disk: &Disk, file: &std::sync::Arc<OpenFile>, offset: u64) -> Ready {
        let answer = submit(disk, read_op(file, offset, CHUNK), Class::Later);
        let (ready, _) = answer.result().unwrap();
        ready
    }

    /// A receiver that reads late gets the bytes that were sent, whatever was read into the same memory
    /// meanwhile.
    pub fn bytes_being_sent_are_not_overwritten(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 1 << 20);
        rig.write("file", 4 << 20);
        let file = open(&disk, &rig.root(), "file");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let offset = |n: u64| n * 100_003;
        let mut late: Vec<TcpStream> = (0..20)
            .map(|n| {
                let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (ours, _) = listener.accept().unwrap();
                ours.set_nonblocking(true).unwrap();
                send_all(ours.as_fd(), &chunk(&disk, &file, offset(n)));
                theirs
            })
            .collect();
        for n in 20..40 {
            let ready = chunk(&disk, &file, offset(n));
            assert!(is_pattern(&bytes(&disk, ready).unwrap(), offset(n)));
        }
        for (n, theirs) in late.iter_mut().enumerate() {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            assert!(received.len() == CHUNK && is_pattern(&received, offset(n as u64)));
        }
    }
}
