import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;

/** Commands that maintain a table as Iceberg's own actions do. */
final class Compaction {
  private Compaction() {}

  /**
   * Rewrites the data files of the table as it was planned, all or those with rows that the filter "where" is true of
   * (it must select whole partitions), into the default spec, and commits that to the table as it is now, under the
   * data sequence number of the plan's snapshot.
   */
  static BaseTable compact(JsonNode command) throws IOException {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    BaseTable planned = PointerOperations.table(command.path("planned").asText(command.get("metadata").asText()));
    Snapshot start = planned.currentSnapshot();
    Expression where =
        command.hasNonNull("where")
            ? ExpressionParser.fromJson(command.get("where").toString(), planned.schema())
            : Expressions.alwaysTrue();
    RewriteFiles rewrite =
        table.newRewrite().validateFromSnapshot(start.snapshotId()).dataSequenceNumber(start.sequenceNumber());
    try (CloseableIterable<FileScanTask> tasks = planned.newScan().filter(where).planFiles()) {
      for (FileScanTask task : tasks) {
        rewrite.deleteFile(task.file());
      }
    }
    try (CloseableIterable<Record> rows = IcebergGenerics.read(planned).where(where).build()) {
      Commits.write(planned, planned.spec(), FileFormat.PARQUET, rows).forEach(rewrite::addFile);
    }
    rewrite.commit();
    return table;
  }

  /** Expires all snapshots but the last, and deletes the files that only they used. */
  static BaseTable expire(JsonNode command) {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    table.expireSnapshots().expireOlderThan(Long.MAX_VALUE).retainLast(1).commit();
    return table;
  }
}
