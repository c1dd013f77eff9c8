// kafkajs as a peer: does what its arguments say and tells each step as a line of JSON.
//
//   node kafkajs_peer.js member '{"bootstrap": ..., "group": ..., "topic": ..., "clientId": ...}'
//   node kafkajs_peer.js transactions '{"bootstrap": ..., "transactionalId": ..., "steps": [...]}'
//
// A member runs until its standard input is closed; then it leaves the group and ends.
const { Kafka, logLevel } = require("kafkajs");

function tell(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

function client({ bootstrap, clientId }) {
  return new Kafka({ clientId: clientId || "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING });
}

async function member(asked) {
  const consumer = client(asked).consumer({
    groupId: asked.group,
    heartbeatInterval: 200,
    sessionTimeout: 10000,
    maxWaitTimeInMs: 50,
    readUncommitted: false,
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell({ event: "joined", isLeader: payload.isLeader, partitions: payload.memberAssignment[asked.topic] || [] })
  );
  consumer.on(consumer.events.CRASH, ({ payload }) => tell({ event: "crashed", error: String(payload.error) }));
  await consumer.connect();
  await consumer.subscribe({ topics: [asked.topic], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) =>
      tell({ event: "record", partition, offset: message.offset, value: String(message.value) }),
  });
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  await consumer.disconnect();
}

// A step is {"topic", "values", "offsets": {"group", "topic", "partition", "offset"} or null, "commit": true or false}.
async function transactions(asked) {
  const producer = client(asked).producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId: asked.transactionalId,
  });
  await producer.connect();
  for (const step of asked.steps) {
    const transaction = await producer.transaction();
    await transaction.send({ topic: step.topic, messages: step.values.map((value) => ({ value, partition: 0 })) });
    if (step.offsets) {
      const { group, topic, partition, offset } = step.offsets;
      const topics = [{ topic, partitions: [{ partition, offset: String(offset) }] }];
      await transaction.sendOffsets({ consumerGroupId: group, topics });
    }
    await (step.commit ? transaction.commit() : transaction.abort());
    tell({ event: step.commit ? "committed" : "aborted" });
  }
  await producer.disconnect();
}

const [command, asked] = [process.argv[2], JSON.parse(process.argv[3])];
({ member, transactions })[command](asked).then(
  () => process.exit(0),
  (error) => {
    tell({ event: "failed", error: String(error) });
    process.exit(1);
  }
);
