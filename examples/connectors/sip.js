/**
 * An access network in front of a SIP proxy that takes WebSockets (RFC 7118): SIP.js, as it is, has one user agent for
 * each address that the node lends. A bundle of it and of this file is the script:
 *
 *     esbuild sip.js --bundle --format=esm --minify --outfile=bundle.js
 */
import { Inviter, Messager, Registerer, RegistererState, SessionState, UserAgent } from "sip.js";

/** Descriptions are the runtimes': `ours` is offered or answered, `theirs` is passed on. */
const described = (session) => ({
  close() {},
  hasDescription: (type) => type === "application/sdp",
  getDescription: async () => ({ body: session.data.ours, contentType: "application/sdp" }),
  setDescription: async (sdp) => void (session.data.theirs = sdp),
  rollbackDescription: async () => {},
  sendDtmf: () => false,
});
const refusal = ({ message }) =>
  Object.assign(new Error(`${message.statusCode} ${message.reasonPhrase}`), { code: message.statusCode });

export default function (node, { server }) {
  const password = node.secret("password"); // of all accounts, where {user} is its name
  const agents = new Map(); // by account
  const calls = new Map(); // sessions of SIP.js, by the node's id of the call
  let domain;

  const addressOf = ({ user, host }) =>
    `sip://${domain}/${encodeURIComponent(user) + (host === domain ? "" : `@${host}`)}`;
  const targetOf = (address) => {
    const name = decodeURIComponent(address.slice(`sip://${domain}/`.length));
    return UserAgent.makeURI(`sip:${name.includes("@") ? name : `${name}@${domain}`}`);
  };

  function begin(name) {
    const agent = new UserAgent({
      uri: UserAgent.makeURI(`sip:${name}@${domain}`),
      authorizationUsername: name,
      authorizationPassword: password.replace("{user}", name),
      transportOptions: { server },
      sessionDescriptionHandlerFactory: described,
      logBuiltinEnabled: false,
      delegate: {
        onDisconnect: (error) => lost(error?.message ?? "the proxy was lost"),
        onMessage: (message) => wrote(name, message),
        onInvite: (session) => called(name, session),
      },
    });
    const lost = (why) => agents.get(name) === agent && node.state("connecting", why); // else it was stopped
    agents.set(name, agent);
    const registerer = new Registerer(agent);
    const registered = new Promise((resolve, reject) => {
      registerer.stateChange.addListener((state) => {
        if (state === RegistererState.Registered) resolve();
        else if (state === RegistererState.Unregistered) lost(`${name} is not registered`);
      });
      const onReject = (response) => reject(refusal(response));
      agent
        .start()
        .then(() => registerer.register({ requestDelegate: { onReject } }))
        .catch(reject);
    });
    return registered;
  }

  async function wrote(to, message) {
    const { from } = message.request;
    const { code } = await node
      .deliver({ from: addressOf(from.uri), to, text: message.request.body })
      .catch(() => ({ code: 480 }));
    if (code < 300) message.accept();
    else message.reject({ statusCode: 480 });
  }

  /** Tell the node what becomes of a session, and forget it at its end. */
  function follow(call, session) {
    calls.set(call, session);
    session.stateChange.addListener((state) => {
      if (state === SessionState.Established && session instanceof Inviter)
        node.call({ event: "accepted", call, sdp: session.data.theirs });
      if (state !== SessionState.Terminated || !calls.delete(call)) return;
      node.call({ event: "ended", call }).catch(() => {}); // it may know already
    });
  }

  async function called(to, session) {
    session.data = { theirs: session.body };
    try {
      const from = addressOf(session.remoteIdentity.uri);
      const { call } = await node.call({ event: "called", from, to, sdp: session.body });
      follow(call, session);
    } catch {
      await session.reject({ statusCode: 480 });
    }
  }

  const actions = {
    async invite({ call, to, as, sdp }) {
      const session = new Inviter(agents.get(as), targetOf(to));
      session.data = { ours: sdp };
      follow(call, session);
      const onProgress = ({ message }) => message.statusCode > 100 && node.call({ event: "rings", call });
      const onReject = ({ message: { statusCode: code, reasonPhrase: text } }) => {
        calls.delete(call);
        node.call({ event: "refused", call, code, text });
      };
      await session.invite({ requestDelegate: { onProgress, onReject } });
    },
    ring: (session) => session.progress(),
    accept(session, { sdp }) {
      session.data.ours = sdp;
      return session.accept();
    },
    describe() {
      throw Object.assign(new Error("A call stays as it began."), { code: 409 });
    },
    hangUp(session, { call, code }) {
      calls.delete(call);
      if (session.state === SessionState.Established) return session.bye();
      return session instanceof Inviter ? session.cancel() : session.reject({ statusCode: code < 400 ? 480 : code });
    },
  };

  async function stop() {
    const ending = [...agents.values()];
    agents.clear();
    calls.clear();
    await Promise.allSettled(ending.map((agent) => agent.stop()));
  }

  return {
    handles: "legacy",

    async start({ domain: ours, accounts }) {
      await stop();
      domain = ours;
      Promise.all(accounts.map(begin)).then(
        () => node.state("live"),
        (error) => node.state([401, 403, 404, 407].includes(error.code) ? "refused" : "connecting", error.message),
      );
    },

    async send({ to, as, text }) {
      const messager = new Messager(agents.get(as), targetOf(to), text, "text/plain;charset=utf-8");
      await new Promise((onAccept, reject) => {
        const onReject = (response) => reject(refusal(response));
        messager.message({ requestDelegate: { onAccept, onReject } });
      });
    },

    async call({ action, call, ...more }) {
      const session = calls.get(call);
      if (action === "invite") await actions.invite({ call, ...more });
      else if (session) await actions[action](session, { call, ...more });
    },

    stop,
  };
}
