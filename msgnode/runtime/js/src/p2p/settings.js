/**
 * Timers and limits of P2P connections; times are in milliseconds, sizes in characters.
 *
 *   answer       for the answer to an invitation
 *   gather       for the candidates of one side
 *   setUp        from the deployment of a stub to its open channel
 *   quarantine   after a set-up that failed, doubling, before the next one
 *   fence        for the answer to a fence, which comes on the channel
 *   refence      before a fence that was not answered is sent once more
 *   resume       for the answer to a resume
 *   ack          that an acknowledgement waits for a message it can ride on
 *   ping         of silence before the other side is asked whether it is there
 *   dead         of silence after which it is not
 *   idle         without a message, after which the channel is closed
 *   keepEpochs   epochs that a late resume can still ask for
 *   window       messages that are sent and not acknowledged; `windowSize` characters of them
 *   heldSize     characters that wait for a way
 *   inbox        messages taken from the channel that wait to be checked; `inboxSize` characters of them, and the
 *                other side sends less before it is told that they came
 *   peers        other runtimes that are known at a time
 *   forget       without use, after which one is known no longer
 *   linger       after the last use of a channel, in which its runtime is known even if others come
 */

export const TIMERS = Object.freeze({
  answer: 5_000,
  gather: 1_000,
  setUp: 15_000,
  quarantine: 30_000,
  fence: 3_000,
  refence: 10_000,
  resume: 5_000,
  ack: 50,
  ping: 5_000,
  dead: 12_000,
  idle: 300_000,
  keepEpochs: 4,
  window: 1_000,
  windowSize: 1024 * 1024,
  heldSize: 4 * 1024 * 1024,
  inbox: 2_000,
  inboxSize: 4 * 1024 * 1024,
  peers: 1_000,
  forget: 600_000,
  linger: 60_000,
});

/** What an application has set, and the rest. */
export function settingsOf({
  iceServers = [],
  relayOnly = false,
  handlerId = "",
  requesterURL = "",
  fieldPeers = true,
  reserve = false,
  timers = {},
} = {}) {
  return {
    iceServers,
    relayOnly,
    handlerId,
    requesterURL,
    fieldPeers,
    reserve,
    timers: { ...TIMERS, ...timers },
  };
}

/** Where the catalogue of a domain has the stub that dials its runtimes. */
export function requesterStubOf(domain) {
  return `hyperty-catalogue://catalogue.${domain}/.well-known/protocolstub/p2p-requester`;
}
