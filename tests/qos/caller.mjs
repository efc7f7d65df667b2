/** The calling end in a page: reserves, calls through the relay, counts echoes, hangs up. */

import { Runtime } from "/msgnode/runtime/js/src/index.js";

export async function caller(options) {
  const runtime = new Runtime(options);
  await runtime.logIn();
  const { url } = runtime.addHyperty();
  let [reservation, connection, channel] = [];
  const ends = [];

  const ask = async (to, value) =>
    (await runtime.bus.request({ type: "create", from: `${runtime.url}/app`, to, body: { value } }))
      .value;

  async function free() {
    const { classes } = await runtime.qos.inquire({ mediaTypes: ["data"] });
    return classes[0].free;
  }

  /** Resolves with the kind of the candidate that the call goes through. */
  async function call(to, order) {
    reservation = await runtime.qos.reserve(order);
    reservation.onEnded((end) => ends.push(end));
    connection = new RTCPeerConnection(reservation.configuration);
    channel = connection.createDataChannel("call");
    const opened = new Promise((resolve, reject) => {
      channel.onopen = resolve;
      connection.onconnectionstatechange = () =>
        connection.connectionState === "failed" && reject(new Error("ICE failed"));
      setTimeout(() => reject(new Error(`not open: ${connection.iceConnectionState}`)), 30_000);
    });
    const gathered = new Promise((resolve) => {
      connection.onicegatheringstatechange = () =>
        connection.iceGatheringState === "complete" && resolve();
    });
    await connection.setLocalDescription();
    await gathered;
    const { sdp } = await ask(to, { sdp: connection.localDescription.sdp });
    await connection.setRemoteDescription({ type: "answer", sdp });
    await opened;
    const stats = [...(await connection.getStats()).values()];
    const pair = stats.find(
      ({ type, nominated, state }) =>
        type === "candidate-pair" && nominated && state === "succeeded",
    );
    return stats.find(({ id }) => id === pair.localCandidateId).candidateType;
  }

  /** Send so many messages of `size` characters; resolves with how many came back in order. */
  function echo(count, size) {
    return new Promise((resolve, reject) => {
      let [sent, back] = [0, 0];
      const timer = setTimeout(() => reject(new Error(`${back} of ${count} came back`)), 60_000);
      const fill = () => {
        while (sent < count && sent - back < 50) channel.send(`${(sent += 1)}`.padEnd(size, "."));
      };
      channel.onmessage = ({ data }) => {
        if (Number.parseInt(data, 10) === back + 1 && data.length === size) back += 1;
        if (back === count) resolve(clearTimeout(timer) ?? back);
        else fill();
      };
      fill();
    });
  }

  return {
    url,
    ask,
    free,
    call,
    echo,
    ends,
    read: () => reservation.read(),
    id: () => reservation.id,
    credential: () => reservation.configuration.iceServers[0].credential,
    release: () => reservation.release(),
    hangUp: () => connection.close(),
    state: () => connection.connectionState,
    close: () => runtime.close(),
  };
}
